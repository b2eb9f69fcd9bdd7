"""Requests that are drawn: constraints of all families, whole, changed and joined, and ways to ask for them.

Number and seed say all of a request, so that each can be sent again on its own (--first N --requests 1).
"""

import copy
import math
import random

import families

# What a value may become.
ODD = [-1, 0, 1, 1.5, -0.0, 1e308, 1e-300, 2 ** 31, 2 ** 53, 2 ** 63, 2 ** 64, 10 ** 40, "", "x", "a" * 3000, "(", "[a-",
       "\ud800", "\u0000", "#", "#/$defs/d0", "#/no/such", "^.*$", True, False, None, [], {}, [[]], ["a", "a"], {"$ref": "#"}]
KEYWORDS = ["type", "enum", "const", "anyOf", "allOf", "oneOf", "not", "if", "then", "else", "items", "prefixItems", "contains",
            "minItems", "maxItems", "minContains", "uniqueItems", "properties", "patternProperties", "propertyNames", "required",
            "additionalProperties", "minProperties", "maxProperties", "dependentSchemas", "unevaluatedProperties",
            "unevaluatedItems", "minLength", "maxLength", "pattern", "format", "minimum", "exclusiveMaximum", "multipleOf",
            "$ref", "$dynamicRef", "$defs", "$anchor", "$id", "$schema"]
PIECES = ["(", ")", "[", "]", "{", "}", "*", "+", "?", "|", ".", "^", "$", "\\", "{0,999}", "{3}", "{1000000}", ".*", "(.|..)",
          "[^a]", "\\w", "\\p{L}", "(?=a)", "\\1", "\"", "/", " ::= ", ": ", "\n", "root", "start", "~ 1..99", "%ignore", "\u00e9",
          "\U0001f600", "a"]
WALK = 300  # of the places of a value that is changed


def drawn_constraint(draw):
    """(what it is, fields)"""
    name = draw.choice(sorted(families.FAMILIES))
    make, sizes = families.FAMILIES[name]
    # Most are small: of the large ones each costs a second of a core.
    size = round(math.exp(draw.random() ** 1.5 * math.log(sizes[-1] / sizes[0])) * sizes[0])
    return f"{name} {size}", make(size, draw)


def places(value, draw):
    """(container, key) of everything in it, up to a number."""
    found, open_ = [], [value]
    while open_ and len(found) < WALK:
        node = open_.pop(draw.randrange(len(open_)))
        keys = list(node) if isinstance(node, dict) else range(min(len(node), 20))
        for key in keys:
            found.append((node, key))
            if isinstance(node[key], (dict, list)):
                open_.append(node[key])
    return found


def changed_json(value, draw):
    value = copy.deepcopy(value)
    root = [value]
    for _ in range(draw.randint(1, 4)):
        node, key = draw.choice(places(root, draw))
        old = node[key]
        how = draw.randrange(7)
        if how == 0:
            node[key] = draw.choice(ODD)
        elif how == 1:
            node[key] = copy.deepcopy(json_of(drawn_constraint(draw)[1])) or {}
        elif how == 2:
            other = draw.choice(ODD + [{"type": "string", "minLength": 3}, {"type": "integer"}])
            node[key] = draw.choice([{"not": old}, {"anyOf": [old, old]}, {"allOf": [old, other]}, {"oneOf": [old, other]},
                                     {"items": old}, {"properties": {"a": old}}, {"if": old, "else": other}, [old] * 3])
        elif how == 3 and isinstance(old, (int, float)) and abs(old) < 1e18:
            node[key] = draw.choice([old + 1, -old, old * 1000, old / 3])
        elif how == 4 and isinstance(node, dict):
            node[draw.choice(KEYWORDS)] = node.pop(key)
        elif how == 5 and isinstance(node, dict):
            node[draw.choice(KEYWORDS)] = copy.deepcopy(draw.choice([old, *ODD]))
        elif isinstance(old, str):
            node[key] = changed_text(old, draw)
    return root[0]


def changed_text(text, draw):
    for _ in range(draw.randint(1, 4)):
        at, end = sorted(draw.randint(0, len(text)) for _ in range(2))
        part = text[at: min(end, at + 200)]
        text = text[:at] + draw.choice(["", part * 2, draw.choice(PIECES), part[::-1], f"({part})*", f"({part}){{0,40}}"]) + \
            text[draw.choice([at, at + len(part)]):]
    return text[:200000]


def json_of(fields):
    return fields["structured_outputs"].get("json")


def changed(fields, draw):
    (kind, what), = fields["structured_outputs"].items()
    if kind == "json":
        what = changed_json(what, draw)
    elif kind == "choice":
        what = [changed_text(text, draw) for text in what[:50]] + what[50:]
    else:
        what = changed_text(what, draw)
        if draw.random() < 0.1:
            kind = draw.choice(["regex", "grammar"])
    return {"structured_outputs": {kind: what}}


def drawn_request(seed, number):
    """(what it is, route, body, how it is asked for: settings of ask())"""
    draw = random.Random(f"{seed} {number}")
    name, fields = drawn_constraint(draw)
    if draw.random() < 0.5:
        name, fields = f"{name}, changed", changed(fields, draw)
    body = {**fields, "temperature": draw.choice([0, 0.8, 1.5]), "seed": number, "stream": draw.random() < 0.4,
            "n": draw.choice([1] * 9 + [2]), **draw.choice([{}, {"speculation": "off"}])}
    how = {}
    if draw.random() < 0.15:
        how["leave"] = draw.choice([0.01, 0.05, 0.2, 0.5])
    elif body["stream"] and draw.random() < 0.3:
        how["cut"] = draw.choice([1, 300, 900])
    tokens = draw.randint(1, 10)
    route = draw.choice(["/v1/completions"] * 3 + ["/v1/chat/completions"] * 2 + ["/v1/responses"])
    if route == "/v1/completions":
        body |= {"prompt": "Go on.", "max_tokens": tokens}
    elif route == "/v1/chat/completions":
        body |= {"messages": [{"role": "user", "content": "Go on."}], "max_tokens": tokens}
    else:
        body |= {"input": "Go on.", "max_output_tokens": tokens, "n": 1}
    return name, route, body, how
