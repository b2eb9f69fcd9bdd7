"""What stands in the tables: drafters that need no training, and heads with what they are trained and used with."""

import dataclasses

UNTRAINED = {name: name for name in ("ngram", "suffix", "recycling", "lookahead", "early_exit", "layer_skip", "auto")}


@dataclasses.dataclass(frozen=True)
class Head:
    method: str  # of `aerie train`
    drafts: str  # of --speculate
    flags: tuple = ()  # as the paper or its code has it where that is not the default
    prunes: bool = True  # --draft-vocab


HEADS = {
    "Medusa": Head("medusa", "medusa", ("--output", "shared")),
    "Hydra": Head("hydra", "hydra"),
    "MLPSpeculator": Head("mlp-speculator", "mlp_speculator", ("--depth", "4")),
    "ReDrafter": Head("redrafter", "redrafter"),
    "EAGLE": Head("eagle", "eagle", prunes=False),
    "HASS": Head("hass", "eagle", prunes=False),
    "EAGLE-3": Head("eagle3", "eagle3", ("--fc-norm",)),
    "P-EAGLE": Head("p-eagle", "eagle3", ("--fc-norm",)),
    "DFlash": Head("dflash", "dflash"),
    "DSpark": Head("dspark", "dspark"),
    "draft model": Head("distill", "draft_model", ("--tied",)),
}
# Of the same checkpoints, trees that grow where the head is sure (EAGLE-2, 2406.16858).
TREES = {"EAGLE-2": "EAGLE", "EAGLE-3, tree": "EAGLE-3"}


def file_name(title):
    return title.lower().replace(" ", "-").replace(",", "")


def settings(title, folder, depth):
    """What --speculate takes for a chain, or a tree, of that depth."""
    tree = title in TREES
    kind = HEADS[TREES.get(title, title)].drafts
    nodes = f"topk=4,num_steps={depth},num_speculative_tokens={3 * depth}" if tree else f"num_speculative_tokens={depth}"
    return f"{kind}:model={folder},{nodes}"
