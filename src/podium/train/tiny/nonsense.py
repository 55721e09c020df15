"""Questions that are taken apart like those of the specialists, about things that nobody can do.

What a very small model has to learn before anything else is where a task begins and ends in a
question, and to say it again word for word. That is the same whatever the task is. Wordings of
real skills are few, and whoever reads nothing else learns these by heart; made-up ones never end.
They are for the cold start alone: they have no answer, so there is nothing to reward.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from podium.eval.tiny.questions import Call, asked
from podium.eval.tiny.skills import SKILLS, Numbers, Skill, Wordings, numbers

VERBS = (
    "paint", "weigh", "label", "fold", "twist", "colour", "print", "lift", "warm", "cool",
    "stack", "crack", "melt", "hammer", "mark", "frame", "store", "rent", "load", "drill",
    "heat", "plant", "park", "film", "tune", "shade", "lend", "roast", "scan", "trade", "water",
    "open", "point", "roll", "shift", "test", "tint", "track", "visit", "wrap", "yield", "zoom",
    "bake", "chart", "defend", "enter", "filter", "guard", "hide", "iron", "judge", "kick",
)  # fmt: skip
"""An s behind each makes it say what something does."""
NOUNS = (
    "colour", "weight", "shadow", "corner", "price", "owner", "taste", "sound", "edge", "shape",
    "season", "root", "core", "surface", "echo", "border", "volume", "label", "twin", "guest",
    "house", "engine", "garden", "ticket", "window", "river", "bridge", "hat", "tone", "pulse",
    "factor", "square", "double", "half", "ratio", "prime", "code", "angle", "length", "depth",
    "key", "ribbon", "pattern", "signal", "score", "grade", "level", "width", "hour", "flag",
)  # fmt: skip
LOOKS = (
    "red", "heavy", "left", "inner", "hidden", "young", "sharp", "local", "usual", "second",
    "common", "upper", "quiet", "modern", "plain", "missing", "wide", "former", "true", "shared",
)  # fmt: skip
WAYS = (
    "by hand", "with care", "in blue", "for a friend", "on paper", "at noon", "as a list",
    "in a hurry", "without a ruler", "in two colours", "like a king", "on the left", "for sale",
    "in small steps", "as in 7b", "to scale", "under water", "by its size", "with a dot at the top",
    "so that it fits", "in Latin", "as on a map", "in pairs", "up to the middle", "like 1a or 2c",
)  # fmt: skip
SOUNDS = ("bl", "k", "str", "m", "pr", "gl", "t", "v", "sn", "d"), ("a", "i", "o", "u", "ee", "oa")
ENDS = ("mp", "nk", "rt", "ddle", "sk", "g", "lm", "x", "b", "ff")

TASKS = (
    "{verb} {{x}}",
    "{verb} {{x}} {way}",
    "{verb} the {noun} of {{x}}",
    "{verb} the {look} {noun} of {{x}}",
    "{verb} the {noun} of {{x}} {way}",
    "{verb} every {noun} of {{x}}",
    "{verb} {{x}} as a {noun}",
    "{verb} {{x}} into a {look} {noun}",
    "{verb} a {noun} from {{x}}",
    "{verb} the {noun} that {{x}} {does}",
    "{verb} what {{x}} {does}",
    "{verb} {{x}}, {look} {noun} first",
    "{verb} which {noun} {{x}} {does} {way}",
    "{verb} {{x}} the {look} way",
    "{verb} all but the {look} {noun} of {{x}}",
    "{verb} how {look} {{x}} is",
    "{verb} which {noun} {does} the {other}: {{x}}",
    "{verb} this {look} {noun}: {{x}}",
    "{verb} {{x}} like the {noun} of a {other}, as in {example}",
    "{verb} {{x}} ({way}, as in {example})",
    "{verb} out every {noun} of {{x}} behind the {look}",
    "{verb} the {look} {noun}s of {{x}} in front of the {other}s",
    "{verb} the {noun}s of {{x}} so that none {does} the {other} after it",
    "{verb} up the {noun}s of {{x}} ending at the {other}",
    "{verb} the {noun} that no {other} {does} in {{x}}",
    "{verb} {{x}} {noun} to {other}",
    "{verb} {{x}} as if it were {look}",
    "{verb} away all of {{x}} but its {look} {noun}",
    "{verb} by how much {{x}} {does}, {way}",
)
RESULTS = (
    "the {noun} of {{x}}",
    "the {look} {noun} of {{x}}",
    "the {noun} that {{x}} {does}",
    "the {noun} {{x}} {does} with",
    "{{x}} as a {noun}",
    "{{x}} with its {noun} {way}",
    "{{x}} {way}",
    "what {{x}} {does}",
    "what {{x}} {does} {way}",
    "the {noun} for {{x}}",
    "{{x}} in {look} {noun}s",
    "how {look} {{x}} is",
    "the {noun} in the {other} of {{x}}",
    "the {look} version of {{x}}",
    "the {noun} {{x}} {does} at",
    "the {noun} no {other} {does} in {{x}}",
    "the {noun}s of {{x}} by {look} {other}",
    "the way {{x}} is {look}",
    "{{x}} with the {noun} of a {other}",
    "{{x}} with no {noun} in it",
    "the {look} one in {{x}}",
    "{{x}} {noun} by {other}",
    "how much {{x}} {does}",
    "{{x}} {look} side up",
)

OPENINGS = (
    "", "", "Hi, ", "Well, ", "So ", "Go ahead: ", "To do: ", "It is time to ", "Let us ", "Just ",
    "Somebody has to ", "You can start now: ", "Here is the plan: ", "I would ask you to ",
    "My wish: ", "What I want: ", "There is a lot to do: ", "Do this: ", "You ought to ", "Q: ",
)  # fmt: skip
ASKING = (
    "Teach", "Allow", "Get", "Lead", "Order", "Push", "Train", "Invite", "Urge", "Remind", "Trust",
    "Expect", "Challenge", "Instruct", "Force", "Encourage", "Want", "Advise", "Enable", "Pay",
)  # fmt: skip
WILLING = (
    "Remember", "Manage", "Learn", "Hurry", "Prepare", "Dare", "Agree", "Choose", "Decide", "Plan",
    "Promise", "Take care", "Continue", "Aim", "Offer", "Make up your mind", "Feel free", "Go on",
)  # fmt: skip
GIVING = (
    "Send", "Bring", "Hand", "Read", "Report", "Fetch", "Name", "Present", "Announce", "Return",
    "Buy", "Type", "Mail", "State", "Leave", "Explain", "Whisper", "Save", "Pass", "Draw",
)  # fmt: skip
WHOM = ("me", "us", "him", "her", "them", "yourself", "somebody", "the team", "my friend", "Ann")
WHETHER = ("Have", "Did", "Will", "Should", "Must", "Has", "Might", "Does", "Would", "Won't")
WHO = ("you", "we", "they", "he", "she", "anybody", "your friends", "the others", "Ann")
KNOWING = (
    "got", "find", "see", "want", "use", "remember", "like", "get", "found", "seen", "mind",
    "guess", "need", "accept", "expect", "compute", "have", "recall", "heard of", "written down",
)  # fmt: skip
NEXT = (
    ", after that ", ". After this, ", "; and next ", ", followed by this: ", " and thereafter ",
    ". In the second place ", ". As soon as this is finished, ", " -> ", " | ", ", next in line: ",
    ", whereupon you ", ". Go on like this: ", "; what remains is this: ", " and right after it ",
    ". This leads on to the following: ", ", later on ", " + ", "; that settled, ", ". Then also ",
)  # fmt: skip
ALSO = (
    ", also ", "; as well, ", ". Do this, too: ", " plus ", " | ", ". In parallel, ", " + ",
    ", next to it ", ". Apart from that, ", "; in addition ",
)  # fmt: skip
ENDINGS = (".", ".", ".", "!", "?", "", " now.", ", thanks.", ", if that is all right.", " today.")


def nonsense(seed: int, n: int) -> Iterator[tuple[str, tuple[Call, ...]]]:
    """`n` questions of one to three steps, each with its steps in its own words."""
    for i in range(n):
        rng = Random(f"{seed} nonsense {i}")
        plan = [_somebody(rng) for _ in range(rng.choice((1, 1, 2, 2, 2, 3, 3)))]
        if not any(skill.name == "nobody" for skill in plan):
            plan[rng.randrange(len(plan))] = _nobody(rng)
        sides = plan[:-1] if len(plan) == 3 else plan[:1]
        given = [skill.draw(rng, "train") for skill in sides]
        yield asked(plan, given, "train", rng, _frame(rng, len(plan)))


def _somebody(rng: Random) -> Skill:
    """Mostly one that does not exist."""
    return _nobody(rng) if rng.random() < 0.75 else SKILLS[rng.choice(sorted(SKILLS))]


def _nobody(rng: Random) -> Skill:
    def draw(rng: Random, split: object) -> Numbers:
        some = numbers("train", *rng.choice(((1, 99), (100, 999), (1000, 9999))))
        return tuple(rng.choice(some) for _ in range(rng.choice((1, 1, 1, 2, 3))))

    task, result = (_words(rng, forms) for forms in (TASKS, RESULTS))
    return Skill(
        "nobody",
        "does what nobody does",
        apply=lambda xs: "?",
        takes=lambda xs: True,
        draw=draw,
        reads=draw,
        tasks=Wordings((task,), (), (), ()),
        nouns=Wordings((result,), (), (), ()),
    )


def _words(rng: Random, forms: tuple[str, ...]) -> str:
    strange = rng.random() < 0.2
    verb = _sounds(rng) if strange else rng.choice(VERBS)
    noun = _sounds(rng) if strange else rng.choice(NOUNS)
    return rng.choice(forms).format(
        verb=verb,
        does=(_sounds(rng) if strange else rng.choice(VERBS)) + "s",
        noun=noun,
        other=rng.choice(NOUNS),
        look=rng.choice(LOOKS),
        way=rng.choice(WAYS),
        example=f"{rng.randint(1, 9)}{rng.choice('abcxyz')}",
    )


def _sounds(rng: Random) -> str:
    """A word that does not exist."""
    starts, middles = SOUNDS
    return rng.choice(starts) + rng.choice(middles) + rng.choice(ENDS)


def _frame(rng: Random, steps: int) -> str | None:
    """A frame put together from parts; now and then one of those that training knows."""
    if rng.random() < 0.3:
        return None
    ending = rng.choice(ENDINGS)
    if rng.random() < 0.3:
        return _wish(rng, ending)
    opening = _opening(rng)
    begins = opening and not opening.endswith(": ")
    if steps == 1 or rng.random() < 0.4:
        part = "task" if steps == 1 else "nested"
        return f"{opening}{{{part if begins else part.title()}}}{ending}"
    task = "{task}" if begins else "{Task}"
    middle = f"{rng.choice(ALSO)}{{other}}" if steps == 3 else ""
    return f"{opening}{task}{middle}{rng.choice(NEXT)}{{then}}{ending}"


def _opening(rng: Random) -> str:
    """What stands before something to do."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(OPENINGS)
    if kind < 0.7:
        return f"{_or_strange(rng, ASKING)} {rng.choice(WHOM)} to "
    return f"{_or_strange(rng, WILLING)} to "


def _wish(rng: Random, ending: str) -> str:
    """A frame that asks for a thing."""
    if rng.random() < 0.5:
        return (
            f"{_or_strange(rng, GIVING)} {rng.choice(('', f'{rng.choice(WHOM)} '))}{{noun}}{ending}"
        )
    return f"{rng.choice(WHETHER)} {rng.choice(WHO)} {_or_strange(rng, KNOWING)} {{noun}}?"


def _or_strange(rng: Random, words: tuple[str, ...]) -> str:
    word = rng.choice(words)
    if rng.random() >= 0.2:
        return word
    strange = _sounds(rng)
    return strange.title() if word[0].isupper() else strange
