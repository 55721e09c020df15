"""Questions about the world, which no specialist can answer and the plain model often can.

Whoever has a pool of specialists is asked other things, too. Its Conductor has to know when to
leave the specialists alone and to hand the whole question to somebody who talks. An answer is
right if it mentions the fact; a few questions hold numbers, so that a number alone says nothing.
"""

from __future__ import annotations

from random import Random

from podium.eval.tiny.skills import Split

CAPITALS = {
    "train": {
        "France": "Paris", "Germany": "Berlin", "Norway": "Oslo", "Egypt": "Cairo",
        "Japan": "Tokyo", "Kenya": "Nairobi", "Cuba": "Havana", "Poland": "Warsaw",
        "Greece": "Athens", "Russia": "Moscow", "Austria": "Vienna", "Portugal": "Lisbon",
        "Peru": "Lima", "Ireland": "Dublin", "Sweden": "Stockholm", "Hungary": "Budapest",
    },
    "test": {
        "Italy": "Rome", "Spain": "Madrid", "Denmark": "Copenhagen", "Finland": "Helsinki",
        "Canada": "Ottawa", "Belgium": "Brussels",
    },
}  # fmt: skip
ABOUT = {
    "train": (
        "What is the capital of {x}?",
        "Which city is the capital of {x}?",
        "Name the capital city of {x}.",
    ),
    "test": ("Tell me the capital of {x}.", "I am going to {x}: what is its capital?"),
}
FACTS = {
    "train": {
        "Why is the sky blue?": "light",
        "Who wrote Hamlet?": "Shakespeare",
        "What is the opposite of hot?": "cold",
        "What is the opposite of day?": "night",
        "Which planet is the largest?": "Jupiter",
        "Which planet do we live on?": "Earth",
        "What do bees make?": "honey",
        "What is the chemical symbol of water?": "H2O",
        "What do we call frozen water?": "ice",
        "What is the star at the centre of our solar system?": "sun",
        "Who discovered gravity when an apple fell?": "Newton",
        "Who developed the theory of relativity?": "Einstein",
        "Which gas do plants take from the air?": "carbon",
        "What is the largest ocean?": "Pacific",
        "On which continent is Egypt?": "Africa",
        "Which language is spoken in Brazil?": "Portuguese",
        "Which language do people speak in France?": "French",
        "What colour is a ripe banana?": "yellow",
        "What colour is grass?": "green",
        "Who walked on the moon in 1969?": "Armstrong",
        "Which organ pumps blood?": "heart",
        "Name a large animal with a trunk.": "elephant",
        "What is the tallest mountain on Earth?": "Everest",
        "In which country is the Great Wall?": "China",
        "Tell me something about rain.": "rain",
        "Write a short poem about the sea.": "sea",
        "Explain winter to a child of 5.": "winter",
        "Hello, how are you?": "I",
        "Write a sentence about a dog.": "dog",
        "Describe a garden.": "garden",
    },
    "test": {
        "Why is grass green?": "chlorophyll",
        "Who painted the Mona Lisa?": "Leonardo",
        "What is the opposite of big?": "small",
        "What is the opposite of up?": "down",
        "What do cows give us to drink?": "milk",
        "Which planet is called the red planet?": "Mars",
        "On which continent is Japan?": "Asia",
        "What colour is snow?": "white",
        "Who wrote Romeo and Juliet?": "Shakespeare",
        "Which ocean did Columbus cross in 1492?": "Atlantic",
        "Tell me about the moon.": "moon",
        "Write a poem about coffee.": "coffee",
        "Describe a river in one sentence.": "river",
        "Good evening, who are you?": "I",
    },
}


def facts(seed: int, n: int, split: Split) -> list[tuple[str, str]]:
    """`n` questions with what an answer must mention; each comes once before any comes again."""
    part = "test" if split == "test" else "train"
    asked = [(form.format(x=x), city) for form in ABOUT[part] for x, city in CAPITALS[part].items()]
    deck = [*asked, *FACTS[part].items()]
    Random(f"{seed} {split} facts").shuffle(deck)
    return [deck[i % len(deck)] for i in range(n)]
