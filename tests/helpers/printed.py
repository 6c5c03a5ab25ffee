"""Numbers as pages and scenes print them."""


def number(text: str) -> float:
    """Returns the number in a text: its minus is a hyphen or U+2212, its thousands have commas."""
    return float(text.replace("−", "-").replace(",", ""))
