"""Small data sets, the same each time."""

import numpy as np
import pandas

ROWS, SHOWN = 120, 25  # trained with, and run

random = np.random.default_rng(11)
X = random.standard_normal((ROWS, 6)) + np.repeat(np.eye(3, 6) * 2, ROWS // 3, axis=0)
COUNTS = random.poisson(np.abs(X) * 2 + 0.5).astype("i8")
CLASSES = np.repeat(np.arange(3), ROWS // 3)
TWO = (CLASSES + (random.random(ROWS) < 0.1) > 0).astype("i8")
WORDS = np.array(["blue", "green", "red"])[CLASSES]
LABELS = np.stack([TWO, (X[:, 1] > 0).astype("i8")], axis=1)
Y = X @ np.array([1, -2, 0.5, 0, 0, 3]) + 0.1 * random.standard_normal(ROWS)
Y2 = np.stack([Y, X[:, 0] - X[:, 3]], axis=1)
POSITIVE = np.exp(Y / 4)
MISSING = np.where(random.random(X.shape) < 0.1, np.nan, X)
KINDS = random.integers(0, 4, (ROWS, 3))
COLOURS = np.array(["blue", "green", "red", "dark red"])[KINDS]
TABLE = pandas.DataFrame(
    {
        "a": X[:, 0],
        "b": X[:, 1],
        "n": COUNTS[:, 0],
        "colour": COLOURS[:, 0],
        "other": COLOURS[:, 1],
    }
)
TEXT = np.array(
    [
        " ".join(
            random.choice(
                [
                    "This",
                    "is",
                    "a",
                    "short",
                    "text",
                    "about",
                    "trees",
                    "vectors",
                    "and",
                    "Words",
                    "of",
                    "it's",
                    "2024",
                    "e-mail",
                ],
                int(n),
            )
        )
        for n in random.integers(1, 9, ROWS)
    ]
)
DICTS = [{"a": float(a), ("b", "c")[int(b > 0)]: float(b)} for a, b in X[:, :2]]


def shown(x):
    """Rows of all classes."""
    step = max(1, len(x) // SHOWN)
    return x.iloc[::step] if hasattr(x, "iloc") else x[::step]
