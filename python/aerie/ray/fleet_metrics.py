"""The pages of several servers as one."""

from __future__ import annotations

from typing import Dict, List, Sequence, Tuple


def _labelled(line: str, replica: str) -> str:
    label = f'replica="{replica}"'
    name, brace, rest = line.partition("{")
    if brace:
        return f"{name}{{{label},{rest}"
    name, _, value = line.partition(" ")
    return f"{name}{{{label}}} {value}"


def merged_metrics(pages: Sequence[Tuple[str, str]]) -> str:
    """Of (replica, page): each family once, with its comments, and the label `replica` on each sample."""
    families: Dict[str, List[str]] = {}
    for replica, page in pages:
        family = ""
        for line in page.splitlines():
            if line.startswith("# HELP "):
                family = line.split(" ", 3)[2]
                families.setdefault(family, [])
            if line.startswith("#"):
                if line not in families.setdefault(family, []):
                    families[family].append(line)
            elif line:
                families.setdefault(family, []).append(_labelled(line, replica))
    return "".join(f"{line}\n" for lines in families.values() for line in lines)
