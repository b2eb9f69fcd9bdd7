"""What the goldens of draft heads share: the tiny target, the rounds, the trees and the files."""

import dataclasses
import json
import re
import shutil
import zlib
from pathlib import Path

import numpy as np
import safetensors.torch
import torch
import transformers

ROOT = Path(__file__).resolve().parent / "heads"
TARGET = ROOT / "target"
VOCABULARY, HIDDEN, LAYERS, EPSILON = 96, 32, 8, 1e-5
PROMPT, TEXT = 17, 48
ADVANCES = [1, 3, 2, 1, 5, 2]
# Between what a decision takes and what it leaves, in logits or log-probabilities: more than 16-bit keys and values cost.
GAP = 4e-3
TREE = {"tree": "eagle2", "total_tokens": 12, "depth": 3, "top_k": 4}
STATIC_TREE = {"tree": "eagle", "num_speculative_tokens": 25}
STATIC_NODES = (
    "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 00001".split()
)  # child ranks along the path


class NearTie(Exception):
    pass


@dataclasses.dataclass
class Tree:
    """Nodes with parents before children; parent -1 is the root."""

    tokens: list
    parents: list
    log_probs: list | None


@dataclasses.dataclass
class Draft:
    chain: list  # token ids of the target
    tree: Tree
    logits: torch.Tensor  # [steps, draft vocabulary]
    hidden: torch.Tensor | None = None  # [steps, hidden]: what a step hands to the next


# ---- Weights ----


def generator(name, seed=0):
    return np.random.Generator(np.random.PCG64(zlib.crc32(f"{name}/{seed}".encode())))


def value(random, name, shape, dtype=torch.float32):
    """Nothing neutral: norms away from 1, biases from 0; logits spread over a few units. Exact in dtype."""
    values = random.standard_normal(shape)
    if re.search(r"norm\d?(\.\d+)?\.weight$", name):
        values = 1.0 + 0.3 * values
    elif name.endswith("bias"):
        values = 0.4 * values
    elif not re.search(r"embed_tokens|mask_hidden", name):
        gain = 2.0 if re.search(r"lm_head|shared_head\.head", name) else 1.1 if re.search(r"[qk]_proj", name) else 1.2
        values = gain * values / shape[-1] ** 0.5
    return torch.from_numpy(values.astype(np.float32)).to(dtype).float()


def target_config():
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": HIDDEN,
        "intermediate_size": 64, "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 1,
        "head_dim": 16, "hidden_act": "silu", "max_position_embeddings": 512, "rms_norm_eps": EPSILON,
        "rope_theta": 25000.0, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
        "torch_dtype": "float32", "transformers_version": "4.36.2"}  # fmt: skip


class Target:
    """The model whose tokens are drafted, as transformers computes it."""

    def __init__(self, folder=TARGET):
        self.folder = folder
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager").eval()  # fmt: skip
        self.config = self.model.config
        self.embedding = self.model.get_input_embeddings().weight.detach()
        self.head = self.model.get_output_embeddings().weight.detach()

    def states(self, text):
        """([rows, hidden] entering each layer and leaving the last one, the same after the final norm)"""
        entering = []

        def keep(_, args, kwargs):
            entering.append(args[0] if args else kwargs["hidden_states"])

        modules = [*self.model.model.layers, self.model.model.norm]
        hooks = [module.register_forward_pre_hook(keep, with_kwargs=True) for module in modules]
        final = self.model.model(torch.tensor([text]), use_cache=False).last_hidden_state[0]
        for hook in hooks:
            hook.remove()
        return [state[0].clone() for state in entering], final


def fixed_text():
    return generator("text").integers(3, VOCABULARY, TEXT).tolist()


def record_states(target):
    """What enters the target's layers for the text, the inputs of all cases: no rounding of keys and values in it."""
    states, _ = target.states(fixed_text())
    tensors = {"states": torch.stack(states), "text": torch.tensor(fixed_text())}
    save_tensors(target.folder / "states.safetensors", tensors)


def make_target(folder=TARGET, config=None, name="target", draw=value):
    """Its values fit BF16, so a head's BF16 copy of the embedding is the target's."""
    config = config or target_config()
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    random = generator(name)
    tensors = {key: draw(random, key, tuple(old.shape), torch.bfloat16) for key, old in model.state_dict().items()}
    save_tensors(folder / "model.safetensors", tensors)
    with torch.no_grad():
        record_states(Target(folder))


cache_is_half = False


def cached(x):
    """Keys and values as a cache gives them back: the engine's is of binary16."""
    return x.half().to(x.dtype) if cache_is_half else x


# ---- Decisions ----


def check_gap(taken, left):
    if not cache_is_half and float(taken) - float(left) < GAP:
        raise NearTie


def best(values, count):
    """Indices of the best ones, best first. What is taken must be clear, their order need not be."""
    order = torch.argsort(values, descending=True, stable=True)
    if count < len(values):
        check_gap(values[order[count - 1]], values[order[count]])
    return order[:count].tolist()


def ranked(values, count):
    """The same where the order matters too."""
    order = torch.argsort(values, descending=True, stable=True)[: count + 1].tolist()
    for better, worse in zip(order, order[1:]):
        check_gap(values[better], values[worse])
    return order[:count]


# ---- Chains and trees. head.run(text, n, path) gives (logits, hidden) after each of path[:0] .. path[:] ----


def chain(head, text, n, steps):
    path = []
    for _ in range(steps):
        logits, _ = head.run(text, n, path)
        path.append(head.token(ranked(logits[-1], 1)[0]))
    logits, hidden = head.run(text, n, path[:-1])
    return path, logits, hidden


class Growing:
    """Candidates in the order of their creation."""

    def __init__(self, head, text, n):
        self.head, self.text, self.n = head, text, n
        self.paths, self.parents, self.scores = [], [], []
        self.cache = {}

    def log_probs(self, path):
        if tuple(path) not in self.cache:
            if hasattr(self.head, "log_probs"):
                self.cache[tuple(path)] = self.head.log_probs(self.text, self.n, path)
            else:
                logits, _ = self.head.run(self.text, self.n, path)
                self.cache[tuple(path)] = torch.log_softmax(logits[-1].double(), -1)
        return self.cache[tuple(path)]

    def add(self, parent, row, choice):
        path = self.paths[parent] if parent >= 0 else []
        self.paths.append(path + [self.head.token(choice)])
        self.parents.append(parent)
        self.scores.append(float(row[choice]) + (self.scores[parent] if parent >= 0 else 0.0))
        return len(self.paths) - 1

    def tree(self, keep, scored=True):
        keep = sorted(keep)
        place = {-1: -1} | {old: new for new, old in enumerate(keep)}
        return Tree([self.paths[i][-1] for i in keep], [place[self.parents[i]] for i in keep],
                    [round(self.scores[i], 7) for i in keep] if scored else None)  # fmt: skip


def eagle2_tree(head, text, n, total_tokens, depth, top_k, **_):
    growing = Growing(head, text, n)
    frontier = [-1]
    for level in range(depth + 1):
        made = []
        for parent in frontier:
            row = growing.log_probs(growing.paths[parent] if parent >= 0 else [])
            made += [growing.add(parent, row, choice) for choice in best(row, top_k)]
        frontier = [made[i] for i in best(torch.tensor([growing.scores[i] for i in made], dtype=torch.double), top_k)]
    return growing.tree(best(torch.tensor(growing.scores, dtype=torch.double), total_tokens - 1))


def static_tree(head, text, n, nodes=STATIC_NODES):
    growing = Growing(head, text, n)
    made = {"": -1}
    for node in nodes:
        row = growing.log_probs(growing.paths[made[node[:-1]]] if len(node) > 1 else [])
        made[node] = growing.add(made[node[:-1]], row, ranked(row, int(node[-1]) + 1)[-1])
    return growing.tree(range(len(nodes)), scored=False)


# ---- Files ----


def write_json(path, content):
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def save_tensors(path, tensors, dtype=torch.float32):
    floats = {name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    copies = {name: tensor.detach().clone().contiguous() for name, tensor in floats.items()}
    safetensors.torch.save_file(copies, path, metadata={"format": "pt"})


def load_head(folder):
    """(config.json, tensors in F32)"""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    tensors = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}
    return json.loads((folder / "config.json").read_text(encoding="utf-8")), tensors


def write_golden(case, text, drafts):
    """One line a round."""
    settings = {"method": case.method, "model": "head", "num_speculative_tokens": case.steps} | case.settings
    head = {
        "format": case.format, "source": case.source, "target": f"../{case.target}", "text": text, "prompt": PROMPT,
        "advances": ADVANCES, "draft_tokens": case.steps, "speculative_config": settings, "tree_config": case.tree,
    } | case.notes  # fmt: skip
    rounds = [{"length": n, "chain": draft.chain, "tree": dataclasses.asdict(draft.tree)} for n, draft in drafts]
    lines = [f"  {json.dumps(name)}: {json.dumps(content)},\n" for name, content in head.items()]
    listed = ",\n".join(f"    {json.dumps(row)}" for row in rounds)
    path = ROOT / case.name / "golden.json"
    path.write_text("{\n" + "".join(lines) + '  "rounds": [\n' + listed + "\n  ]\n}\n", encoding="utf-8")
    tensors = {f"round{r}.logits": draft.logits for r, (_, draft) in enumerate(drafts)}
    tensors |= {f"round{r}.hidden": draft.hidden for r, (_, draft) in enumerate(drafts) if draft.hidden is not None}
    save_tensors(ROOT / case.name / "golden.safetensors", tensors)


# ---- Cases ----


@dataclasses.dataclass
class Case:
    """write(case, target, random) makes ROOT/name/head; open(case, target) gives heads, of which the first makes the
    golden and the others must agree with it."""

    name: str
    format: str
    source: str
    method: str
    write: object
    open: object
    steps: int = 4
    target: str = "target"
    tree: dict = dataclasses.field(default_factory=lambda: dict(TREE))
    settings: dict = dataclasses.field(default_factory=dict)
    notes: dict = dataclasses.field(default_factory=dict)


def draft_of(case, head, text, n):
    if hasattr(head, "draft"):
        return head.draft(text, n)
    tokens, logits, hidden = chain(head, text, n, case.steps)
    tree = static_tree(head, text, n) if case.tree["tree"] == "eagle" else eagle2_tree(head, text, n, **case.tree)
    return Draft(tokens, tree, logits, hidden)


def compare(case, ours, other):
    difference = (ours.logits - other.logits).abs().max().item()
    assert difference < 2e-4, f"{case.name}: another implementation's logits differ by {difference}"
    assert ours.chain == other.chain and ours.tree.parents == other.tree.parents, case.name
    assert ours.tree.tokens == other.tree.tokens, case.name
    if ours.hidden is not None and other.hidden is not None:
        assert torch.allclose(ours.hidden, other.hidden, atol=2e-4), case.name
    return difference


# What golden_test.cc bears, of the length of a row of logits.
TOLERANCE = 1e-3


def rounding(case, head, text, lengths, drafts):
    """How much of a row of logits such a cache changes, at most."""
    global cache_is_half
    cache_is_half = True
    try:
        rounded = [draft_of(case, head, text, n).logits for n in lengths]
    finally:
        cache_is_half = False
    return max(
        ((there - here.logits).norm(dim=-1) / here.logits.norm(dim=-1)).max().item()
        for there, (_, here) in zip(rounded, drafts)
    )


def make_case(case, target):
    folder = ROOT / case.name
    for seed in range(100):
        random = generator(case.name, seed)
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "head").mkdir(parents=True)
        case.write(case, target, random)
        text = fixed_text()
        lengths = [PROMPT + 1 + sum(ADVANCES[:r]) for r in range(len(ADVANCES) + 1)]
        heads = case.open(case, target)
        try:
            drafts = [(n, draft_of(case, heads[0], text, n)) for n in lengths]
            others = [[draft_of(case, head, text, n) for n in lengths] for head in heads[1:]]
            if rounding(case, heads[-1], text, lengths, drafts) > 0.95 * TOLERANCE:
                continue
        except NearTie:
            continue
        differences = [compare(case, ours, draft) for other in others for (_, ours), draft in zip(drafts, other)]
        spread = np.mean([draft.logits.std(dim=-1).mean().item() for _, draft in drafts])
        assert 0.8 < spread < 5, f"{case.name}: logits spread by {spread}"
        write_golden(case, text, drafts)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        agree = f", agree to {max(differences):.1e}" if differences else ""
        print(f"{case.name}: seed {seed}, {size} bytes, spread {spread:.2f}{agree}", flush=True)
        return
    raise RuntimeError(f"{case.name}: every seed has a near tie, or shows how a cache rounds")
