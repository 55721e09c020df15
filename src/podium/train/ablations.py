"""What each part of TRINITY is worth: the same training without it, on the same questions.

The first three are the paper's own ablations. The other two go back to a published rule where
ours differs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from podium.train.trinity import Training
from podium.train.trinity_recipe import TrinityRecipe
from podium.trinity import Head

LAST = -1

Change = Callable[[TrinityRecipe], TrinityRecipe]


def _without(role: str) -> Change:
    return lambda r: r.model_copy(update={"roles": tuple(x for x in r.roles if x != role)})


def _workers_only(recipe: TrinityRecipe) -> TrinityRecipe:
    return recipe.model_copy(update={"roles": ("worker",)})


def _last_token(recipe: TrinityRecipe) -> TrinityRecipe:
    model = recipe.model.model_copy(update={"position": LAST})
    return recipe.model_copy(update={"model": model})


def _published(rule: str) -> Change:
    def change(recipe: TrinityRecipe) -> TrinityRecipe:
        rules = recipe.rules.model_copy(update={rule: False})
        return recipe.model_copy(update={"rules": rules})

    return change


ABLATIONS: Mapping[str, Change] = {
    "no thinker": _without("thinker"),
    "no roles": _workers_only,
    "last token": _last_token,
    "a verifier may come first": _published("always_answer"),
    "objections are shown to nobody": _published("show_objections"),
}


async def ablated(training: Training, name: str, price: float) -> tuple[Training, Head]:
    """Train without one part, or read what an earlier run has found."""
    label = name.replace(" ", "-")
    changed = await training.varied(ABLATIONS[name](training.settings), label)
    file = changed.out / "head.json"
    if not file.exists():
        (await changed.head(price)).save(file)
    return changed, Head.load(file)
