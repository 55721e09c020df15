"""How the tiny specialists are taught: a 135M model learns one skill and nothing else.

Nothing here knows how a Conductor is trained.
"""
