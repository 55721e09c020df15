"""A pool of tiny specialists, and the questions that only a team of them can answer.

`skills` says what can be done, in code and in words; `questions` composes skills into questions of
one step, of two in a row, and of two side by side with a merge; `specialists` teaches a 135M model
one skill and nothing else. Nothing here knows how a Conductor is trained.
"""
