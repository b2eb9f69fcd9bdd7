#!/usr/bin/env python3
"""Records what Hugging Face's tokenizers and SentencePiece make of hard texts. Run by hand, not by CI.

    python tests/golden/make_tokenizers.py

Needs tokenizers and sentencepiece. Writes, into tests/golden/tokenizers:

    components.json    tiny tokenizer.json files (one model for several cases) that together have every
                       component that Aerie reads, and the ids of the texts
    recipes.json       for each pre-tokenizer that GGUF files name: its parts, and where it cuts the texts
    sentencepiece.json the ids of the shared test model for some lines of botchan.txt and for the texts, and
                       those of tiny models that are trained here (*.model)
"""

import json
import pathlib

import sentencepiece
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "tokenizers"
DATA = HERE.parents[1].parent / "shared" / "data" / "tokenizers" / "sentencepiece"

TEXTS = list(dict.fromkeys([
    "", " ", "  ", "Hello world", " Hello  world ", "hello, world! it's 12345 o'clock.", "HELLO World's WE'LL don't I'M",
    "\u2581a \u2581\u2581b\u2581", "a\u2581b", "x  y   z", "\r\n a\r\n", "line\n\n\nline \n end\n", "\ttab\t\ttab ",
    "na\u00efve caf\u00e9 e\u0301 \u1e9b\u0323 \u212b", "ﬁ ﬂ ½ ² Ⅷ ㎏ Ａｂｃ１２３ ｶﾞ", "İstanbul ISPARTA ΑΣΑΣ ß ẞ", "ſ 'ſ K", "\u200b\u200d\ufeff\u00ad\u2060x",
    "a\u00a0b\u2003c\u3000d\u2028e\u0085f", "\x00\x01\x1b\x7f\x85 a\x08b", "我能吞下玻璃而不伤身体。123東京都", "한국어 문장 각각", "नमस्ते क्षत्रिय",
    "สวัสดี ำน้ำ", "مرحبا ١٢٣", "👨\u200d👩\u200d👧 👍🏽 🇺🇳 ❤\ufe0f", "Z\u0351\u036b\u0343a\u0335l", "a\u0301\u0323 a\u0323\u0301 q\u0307\u0323",
    "0 00 000 0000 00000 1,234.56 v1.2", "foo_bar-baz.qux(1)[2]{3}<4>", "!!??...,,;;", "http://a.b/c?d=e&f#g", "C:\\x\\y /usr/bin",
    "<s> a</s> <unk> <sep> <mask>x<mask>  y", "a<sep>b  <sep>  c<sep>", "word wordless swords word", "<0x0A> <0x41>", "the the  the the",
    "2024-02-29T23:59:60Z x=10;y=-3.5e+08", "٣٤٥ ४५६ ๗๘๙ x₁₂", "'s't're've'm'll'd 's ''s l'l'll", "it’s don’t we’ll", "a \n b\t\n\tc \t \n",
    "   leading and trailing   ", "\n\nboth\n\n", " " * 17, "\t" * 9, "x" + " " * 33 + "y", "Γειά σου Κόσμε Привет, мир! Ёлка №5", "ᓄᓇᕗᑦ 𐍈𐌰𐌿 𒀀𒁀",
    "1\ufe0f\u20e3 #\ufe0f\u20e3", "\x1b[31mred\x1b[0m \x07", "\ufffd \ufffe\uffff \ue000 \U0010ffff", "\u202eabc\u202c", "#include <vector>\nint main() { return v[0] >= 3; }\n",
    "def f(x: int = 0) -> str:\n    return f'{x!r:>10}'  # why\n", "SELECT * FROM t WHERE a<>'b''c' -- x", "| a | b |\n|---|:-:|\n", "a" * 60, "aAbBcCdDeEfFgG snake_case camelCase SCREAMING",
    "=" * 40 + "!?" * 20, "https://user:pw@example.org:8080/a?q=%20x#frag", "\u0915\u094d\u0937 \u0e33 \u1100\u1161\u11a8 \u00b5\u2126",
]))


def train_text():
    return (DATA / "botchan.txt").read_text(encoding="utf-8").splitlines()[:1500]


BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def trained(model, trainer, pre_tokenizer):
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.train_from_iterator(train_text(), trainer)
    return json.loads(tokenizer.to_str())["model"]


def byte_model(alphabet):
    trainer = trainers.BpeTrainer(vocab_size=420 if alphabet else 230, initial_alphabet=alphabet, show_progress=False)
    return trained(models.BPE(), trainer, pre_tokenizers.ByteLevel(add_prefix_space=False))


def character_model(byte_fallback, fuse_unk):
    special = ["<unk>", "<s>", "</s>"] + (BYTE_TOKENS if byte_fallback else [])
    trainer = trainers.BpeTrainer(vocab_size=len(special) + 220, special_tokens=special, show_progress=False, limit_alphabet=60)
    model = trained(models.BPE(unk_token="<unk>"), trainer, pre_tokenizers.Metaspace(prepend_scheme="always"))
    return {**model, "unk_token": "<unk>", "byte_fallback": byte_fallback, "fuse_unk": fuse_unk}


def unigram_model(byte_fallback):
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=["<unk>", "<s>", "</s>"], unk_token="<unk>", show_progress=False)
    model = trained(models.Unigram(), trainer, pre_tokenizers.Metaspace(prepend_scheme="always"))
    model["vocab"] = [[name, round(score, 4)] for name, score in model["vocab"]]
    if byte_fallback:
        model["vocab"] += [[name, 0.0] for name in BYTE_TOKENS]
        model["byte_fallback"] = True
    return model


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def byte_level(use_regex=True, add_prefix_space=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def metaspace(scheme="always", cut=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": cut}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def added(content, i, **flags):
    token = {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    return {**token, **flags}


BYTES_DECODER = byte_level()
SPM_DECODER = sequence("decoders", replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                       {"type": "Strip", "content": " ", "start": 1, "stop": 0})
GPT2_PRE = byte_level()
FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
BEHAVIORS = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]


def fields(message):
    """The length-delimited fields of a protocol buffer, by number."""
    found, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            varint()
        elif key & 7 == 2:
            size = varint()
            found[key >> 3] = message[at:at + size]
            at += size
        else:
            at += {1: 8, 5: 4}[key & 7]
    return found


def charsmap():
    """A small character map: that of one of the models below."""
    return fields(fields((OUT / "unigram_map.model").read_bytes())[3])[2]


def component_cases():
    import base64

    yield "gpt2", "bytes", {"pre_tokenizer": GPT2_PRE}
    yield "prefix space", "bytes", {"pre_tokenizer": byte_level(add_prefix_space=True)}
    yield "missing bytes", "few bytes", {"pre_tokenizer": GPT2_PRE}
    yield "no regex", "bytes", {"pre_tokenizer": byte_level(use_regex=False)}
    for form in FORMS:
        yield form, "bytes", {"normalizer": {"type": form}, "pre_tokenizer": GPT2_PRE}
    yield "lowercase", "bytes", {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": GPT2_PRE}
    yield "strip", "bytes", {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}, "pre_tokenizer": GPT2_PRE}
    yield "strip right", "bytes", {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}, "pre_tokenizer": GPT2_PRE}
    yield "accents", "bytes", {"normalizer": sequence("normalizers", {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}), "pre_tokenizer": GPT2_PRE}
    yield "replace", "bytes", {"normalizer": sequence("normalizers", replace("l", "LL"), replace(r"\s{2,}|\d", "#", "Regex"), replace(r"x+", "-", "Regex")), "pre_tokenizer": GPT2_PRE}
    yield "prepend", "bytes", {"normalizer": {"type": "Prepend", "prepend": "\u2581"}, "pre_tokenizer": GPT2_PRE}
    yield "byte normalizer", "bytes", {"normalizer": {"type": "ByteLevel"}, "pre_tokenizer": split(r"\w+|\W", "Isolated")}
    yield "nmt", "bytes", {"normalizer": {"type": "Nmt"}, "pre_tokenizer": GPT2_PRE}
    yield "map", "bytes", {"normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()}, "pre_tokenizer": GPT2_PRE}
    for behavior in BEHAVIORS:
        yield f"split {behavior}", "bytes", {"pre_tokenizer": sequence("pretokenizers", split(r"[aeiou\d]", behavior), byte_level(use_regex=False))}
        yield f"split not {behavior}", "bytes", {"pre_tokenizer": sequence("pretokenizers", split(r"\s+", behavior, True), byte_level(use_regex=False))}
        yield f"split text {behavior}", "bytes", {"pre_tokenizer": sequence("pretokenizers", split("o", behavior, False, "String"), byte_level(use_regex=False))}
        yield f"punctuation {behavior}", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": behavior}, byte_level(use_regex=False))}
    yield "empty matches", "bytes", {"pre_tokenizer": sequence("pretokenizers", split(r"\p{N}+"), split(r"(?=(\d{3})+(?!\d))"), byte_level(use_regex=False))}
    yield "classes", "bytes", {"pre_tokenizer": sequence("pretokenizers", split(r"[^\S\n]+|\h{2}|[[:space:]]|\bw\w*\b"), byte_level(use_regex=False))}
    yield "quantifiers", "bytes", {"pre_tokenizer": sequence("pretokenizers", split(r"\p{N}{1,3}+|a{,2}b|(?i:s(?=\s))|l++o?|\p{Han}|(?<=e)r|[\u0430-\u044f]+$"), byte_level(use_regex=False))}
    for each in (True, False):
        yield f"digits {each}", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "Digits", "individual_digits": each}, GPT2_PRE)}
    yield "whitespace", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "Whitespace"}, byte_level(use_regex=False))}
    yield "whitespace split", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, byte_level(use_regex=False))}
    yield "bert", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "BertPreTokenizer"}, byte_level(use_regex=False))}
    yield "falcon", "bytes", {"pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"}, GPT2_PRE, {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]"))}
    yield "ignore merges", "bytes", {"pre_tokenizer": GPT2_PRE, "model": {"ignore_merges": True}}
    # Added tokens: all flags; a normaliser that changes a normalised one.
    tokens = [added("<s>", 420, special=True), added("<sep>", 421, lstrip=True), added("<mask>", 422, rstrip=True, special=True),
              added("word", 423, single_word=True), added("  ", 424, normalized=True), added("Hello", 425, normalized=True), added("w\u00f6rld", 426, normalized=True)]
    yield "added", "bytes", {"pre_tokenizer": GPT2_PRE, "added_tokens": tokens}
    yield "added, lower case", "bytes", {"normalizer": {"type": "Lowercase"}, "pre_tokenizer": GPT2_PRE, "added_tokens": tokens}
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [420], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [421], "tokens": ["</s>"]}}}
    yield "template", "bytes", {"pre_tokenizer": GPT2_PRE, "added_tokens": [added("<s>", 420, special=True), added("</s>", 421, special=True)],
                                "post_processor": sequence("processors", byte_level(), template)}
    # SentencePiece's BPE: Llama 2, Gemma, and with a metaspace.
    special = [added("<unk>", 0, special=True), added("<s>", 1, special=True), added("</s>", 2, special=True)]
    llama = {"normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "\u2581"}, replace(" ", "\u2581")), "decoder": SPM_DECODER, "added_tokens": special}
    yield "llama", "characters", llama
    yield "gemma", "characters", {"normalizer": replace(" ", "\u2581"), "pre_tokenizer": split(" ", "MergedWithPrevious", False, "String"), "added_tokens": special,
                                  "decoder": sequence("decoders", replace("\u2581", " "), {"type": "ByteFallback"}, {"type": "Fuse"})}
    yield "llama, unknown", "characters, unknown", llama
    yield "llama, fused", "characters, fused", llama
    for scheme in ("always", "first", "never"):
        for cut in (True, False):
            yield f"metaspace {scheme} {cut}", "characters", {"pre_tokenizer": metaspace(scheme, cut), "decoder": metaspace(scheme, cut), "added_tokens": special + [added("<sep>", 479)]}
    # Unigram.
    for name in ("unigram", "unigram bytes"):
        yield name, name, {"pre_tokenizer": metaspace(), "decoder": metaspace(), "added_tokens": special}
    yield "t5", "unigram", {"normalizer": sequence("normalizers", {"type": "Strip", "strip_left": False, "strip_right": True}, replace(" {2,}", "\u2581", "Regex")),
                            "pre_tokenizer": sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace()), "decoder": metaspace(), "added_tokens": special}


def compose(model, parts):
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None, "pre_tokenizer": None,
             "post_processor": None, "decoder": BYTES_DECODER, **parts}
    whole["model"] = {**model, **parts.get("model", {})}
    return whole


def encode(tokenizer, text):
    try:
        return tokenizer.encode(text, add_special_tokens=True).ids
    except BaseException as error:  # a panic inside the library is no Exception
        print("no ids of", ascii(text), ":", error)
        return None


def components():
    available = {
        "bytes": byte_model(pre_tokenizers.ByteLevel.alphabet()),
        "few bytes": byte_model([]),
        "characters": character_model(True, True),
        "characters, unknown": character_model(False, False),
        "unigram": unigram_model(False),
        "unigram bytes": unigram_model(True),
    }
    available["characters, fused"] = {**available["characters, unknown"], "fuse_unk": True}
    cases = []
    for name, model, parts in component_cases():
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(compose(available[model], parts)))
        case = {"name": name, "model": model, "parts": parts,
                "ids": [encode(tokenizer, text) for text in TEXTS]}
        case["decoded"] = [tokenizer.decode(ids or [], skip_special_tokens=False) for ids in case["ids"]] if "decoder" in parts else None
        cases.append(case)
    return {"models": available, "texts": TEXTS, "cases": cases}


# Facts of the published tokenizer.json files: (names, normaliser, steps before ByteLevel, ByteLevel has its regex, steps behind it).
CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
CL100K_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+{0}|" + r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + r"*{0}|\p{N}{1}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DIGITS = {"type": "Digits", "individual_digits": True}
HAN = split("[一-龥ࠀ-一가-퟿]+")
CASED = (  # the letters with case, in the order of the published file
    "\\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79"
    "-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-"
    "\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-"
    "\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-"
    "\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-"
    "\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
RECIPES = [
    (["gpt-2", "gpt2", "phi-2"], None, [], True, []),
    (["mpt", "olmo"], "NFC", [], True, []),
    (["smollm", "starcoder", "refact", "codeshell"], None, [DIGITS], True, []),
    (["command-r"], "NFC", [DIGITS], True, []),
    (["llama-bpe", "llama3", "llama-v3", "lfm2", "dbrx", "chatglm-bpe", "glm4"], None, [split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + CL100K_TAIL)], False, []),
    (["qwen2"], "NFC", [split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + CL100K_TAIL)], False, []),
    (["qwen35"], "NFC", [split(CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")], False, []),
    (["gpt-4o", "llama4"], None, [split(O200K.replace("{0}", CONTRACTIONS + "?").replace(r"\p{N}{1}", r"\p{N}{1,3}"))], False, []),
    (["tekken"], None, [split(O200K.replace("{0}", "").replace(r"\p{N}{1}", r"\p{N}"))], False, []),
    (["bailingmoe"], None, [split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")], False, []),
    (["bloom", "poro-chat", "gpt3-finnish"], None, [split(r" ?[^(\s|[.,!?…。，、।۔،])]+")], False, []),
    (["viking"], None, [split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), DIGITS], False, []),
    (["deepseek-llm"], None, [split("[\r\n]"), split(CASED), split("\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"), split(r"\s+$"), HAN, DIGITS], False, []),
    (["deepseek-coder"], None, [split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), HAN, DIGITS], False, []),
    (["deepseek-v3"], None, [split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"),
                             split("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")], False, []),
    (["falcon"], None, [{"type": "Punctuation", "behavior": "Contiguous"}], True, [{"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]")]),
]


def recipes():
    rows = []
    for names, form, before, regex, behind in RECIPES:
        parts = sequence("pretokenizers", *before, byte_level(use_regex=regex), *behind)
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(compose({"type": "BPE", "vocab": {}, "merges": []}, {"pre_tokenizer": parts})))
        # Lengths in characters of GPT-2's alphabet, which are bytes of the text.
        cuts = [[len(piece) for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] for text in TEXTS]
        rows.append({"names": names, "normalizer": {"type": form} if form else None, "pre_tokenizer": parts, "cuts": cuts})
    return {"texts": TEXTS, "recipes": rows}


def train(name, **options):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(train_text()), model_prefix=str(OUT / name), minloglevel=2, self_test_sample_size=0, num_threads=1, **options)
    (OUT / f"{name}.vocab").unlink()
    # The trainer records its input and its own settings; only what a reader needs is kept.
    return name


def tiny_models():
    (OUT / "map.tsv").write_text("\n".join(["41\t61", "FB01\t66 69", "65 301\tE9", "E9\t65", "3000\t20", "0D 0A\t20 20", "200B\t", "1F44D 1F3FD\t2B"]) + "\n")
    common = {"normalization_rule_name": "identity"}
    symbols = {"user_defined_symbols": ["<sep>", "\u2581\u2581", "word"], "control_symbols": ["<mask>"]}
    yield train("bpe_bytes", vocab_size=500, model_type="bpe", byte_fallback=True, remove_extra_whitespaces=False, **symbols, **common)
    yield train("bpe_plain", vocab_size=220, model_type="bpe", **common)
    yield train("bpe_bare", vocab_size=220, model_type="bpe", add_dummy_prefix=False, remove_extra_whitespaces=False, **common)
    yield train("unigram_bytes", vocab_size=500, model_type="unigram", byte_fallback=True, **symbols, **common)
    yield train("unigram_suffix", vocab_size=200, model_type="unigram", treat_whitespace_as_suffix=True, **common)
    yield train("unigram_map", vocab_size=200, model_type="unigram", normalization_rule_tsv=str(OUT / "map.tsv"))
    (OUT / "map.tsv").unlink()


def sentencepieces(names):
    lines = (DATA / "botchan.txt").read_text(encoding="utf-8").splitlines()
    shared = sentencepiece.SentencePieceProcessor(model_file=str(DATA / "test_model.model"))
    result = {"texts": TEXTS, "shared": {"ids": shared.encode(TEXTS), "lines": {i: shared.encode(lines[i]) for i in range(0, len(lines), 25)}}, "models": {}}
    for name in names:
        processor = sentencepiece.SentencePieceProcessor(model_file=str(OUT / f"{name}.model"))
        ids = processor.encode(TEXTS)
        result["models"][name] = {"ids": ids, "decoded": [processor.decode(row) for row in ids]}
    return result


def write(name, value):
    path = OUT / name
    path.write_text(json.dumps(value, ensure_ascii=True, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"wrote {name}: {path.stat().st_size} bytes")


def main():
    OUT.mkdir(exist_ok=True)
    names = list(tiny_models())
    write("sentencepiece.json", sentencepieces(names))
    write("components.json", components())
    write("recipes.json", recipes())


if __name__ == "__main__":
    main()
