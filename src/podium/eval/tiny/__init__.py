"""Questions that only a team of tiny specialists can answer.

`skills` says what can be done, in code and in words; `questions` composes skills into questions of
one step, of two in a row, and of two side by side with a merge; `facts` asks about the world. How
the specialists are taught is in `podium.train.tiny`.
"""
