"""Constraints that ask for much in few bytes, by families with a size.

TABLE has single ones that were once enough to end a server or to hold it up. A family is a function
make(n, draw): `n` says how large, `draw` (a random.Random) the rest. What they make are the fields of a request.
"""

import random

TABLE = {}  # name -> (fields, requests at once)
FAMILIES = {}  # name -> (make, sizes)


def schema(what):
    return {"structured_outputs": {"json": what}}


def regex(what):
    return {"structured_outputs": {"regex": what}}


def grammar(*lines):
    return {"structured_outputs": {"grammar": "\n".join(lines)}}


def choice(texts):
    return {"structured_outputs": {"choice": texts}}


def family(*sizes):
    def keep(make):
        FAMILIES[make.__name__] = (make, sizes)
        return make

    return keep


def generated():
    """name -> fields: each family at each of its sizes, the same every time."""
    return {f"{name} {size}": make(size, random.Random(f"{name} {size}"))
            for name, (make, sizes) in FAMILIES.items() for size in sizes}


def references(levels, of):
    """Definitions d0 to d`levels`: of(i, reference to the one below) says each but the first."""
    definitions = {"d0": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}
    for i in range(1, levels + 1):
        definitions[f"d{i}"] = of(i, {"$ref": f"#/$defs/d{i - 1}"})
    return {"$ref": f"#/$defs/d{levels}", "$defs": definitions}


def doubling(levels):
    return references(levels, lambda _, below: {"allOf": [below, below]})


TABLE.update({
    "doubling": (schema(doubling(64)), 1),
    "multiple": (schema({"type": "integer", "multipleOf": 9999}), 1),
    "counts": (regex("(.{0,300}){3}"), 1),
    "longer counts": (regex("(.{0,3000}){3}"), 1),
    "behind anything": (regex(".*.{3000}"), 1),
    "enumeration": (schema({"enum": [f"s{i * 7919 % 100000:05}" for i in range(30000)]}), 8),
    "nested counts": (regex("((((a?){30}){30}){30}){30}"), 1),
    "ways to cut": (regex("(.|..|...|....|.....)*x(.|..|...){40}"), 1),
    "combinations": (schema({"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": 40 + i}]}
                                       for i in range(1, 30)]}), 1),
    "patterns": (schema({"type": "string", "allOf": [{"pattern": f"^.*{c}.{{20}}$"} for c in "abcdefgh"]}), 1),
})


# --- regular expressions

@family(2, 5, 10, 20, 40, 90)
def counts_in_counts(n, draw):
    depth = draw.randint(2, 5)
    return regex("(" * depth + draw.choice(["a?", "a", ".", "ab|a", "[a-z]?"]) + f"){{{n}}}" * depth)


@family(10, 100, 400, 1500, 6000, 40000)
def counted_anything(n, draw):
    return regex(f"(.{{{draw.choice([0, n // 2])},{n}}}){{{draw.randint(1, 4)}}}")


@family(5, 20, 80, 300, 1200, 5000)
def far_behind_anything(n, draw):
    return regex(f".*{draw.choice('abx.')}{draw.choice(['.', '[ab]', '(.|..)'])}{{{n}}}")


@family(4, 16, 64, 250, 1000, 4000)
def common_beginnings(n, draw):
    length = draw.randint(1, 30)
    return regex("|".join("a" * length + f"{draw.randrange(10 ** 6)}" for _ in range(n)))


@family(2, 4, 8, 16, 32, 64)
def ways_to_cut(n, draw):
    pieces = "|".join("." * i for i in range(1, draw.randint(2, 7)))
    return regex(f"({pieces})*{draw.choice('xyz')}({pieces}){{{n}}}")


@family(3, 10, 40, 150, 600, 3000)
def counted_classes(n, draw):
    classes = [r"\w", r"[^\d\s]", "[a-zA-Z0-9_.-]", r"\S", "[^\"\\\\]", "[aeiou]"]
    return regex("".join(f"{draw.choice(classes)}{{{draw.randint(0, n)},{n}}}" for _ in range(draw.randint(1, 6))))


@family(1, 5, 25, 100, 500, 2500)
def classes_of_characters(n, draw):
    ranges = "".join(chr(start) + "-" + chr(start + draw.randint(1, 40))
                     for start in (draw.choice([0x100, 0x3040, 0x4e00, 0x1f300]) + 60 * draw.randrange(100)
                                   for _ in range(min(n, 200))))
    return regex(f"[{draw.choice(['', '^'])}{ranges}]{{0,{n}}}x")


@family(4, 10, 20, 40, 100, 400)
def much_that_may_be_left_out(n, draw):
    return regex(draw.choice(["(a?){%d}a{%d}", "(a*)*(b?){%d}c{%d}", "((a|b|ab)?){%d}(ab){%d}"]) % (n, n))


@family(2, 6, 20, 60, 200, 800)
def powers(n, draw):
    """No automaton without stacks is small."""
    return regex(f"(a|b)*{draw.choice('ab')}(a|b){{{n}}}" + draw.choice(["", "c*", "(a|b)*"]))


# --- schemas of strings, numbers and lists of values

@family(1, 4, 12, 40, 120, 500)
def patterns_at_once(n, draw):
    letters = "abcdefghijkl"
    return schema({"type": "string", "allOf": [{"pattern": f"^.*{c}.{{{n}}}$"}
                                               for c in letters[: draw.randint(2, 12)]]})


@family(5, 50, 500, 5000, 20000, 90000)
def lengths(n, draw):
    return schema({"type": "string", "minLength": draw.randint(0, n), "maxLength": n,
                   **draw.choice([{}, {"pattern": "a.*b"}, {"pattern": "^(ab|a|b)*$"}, {"format": "email"}])})


@family(10, 100, 1000, 5000, 15000, 40000)
def wide_enumeration(n, draw):
    front = "x" * draw.choice([0, 3, 40])
    return schema({"enum": [draw.choice([f"{front}{i * 7919 % 999983}", i * i]) for i in range(n)]})


@family(10, 100, 1000, 3000, 9000, 12000)
def choices_that_begin_alike(n, draw):
    front = "word " * draw.randint(0, 8)
    return choice([f"{front}{i * 31 % 100003:x}" for i in range(n)])


@family(10, 300, 3000, 20000, 100000, 400000)
def long_constants(n, draw):
    text = "".join(draw.choice("ab\"\\\u00e9\u6f22") for _ in range(min(n, 5000))) * max(1, n // 5000)
    return schema({"const": draw.choice([text, [text] * 3, {text[:50]: text}, [[i] for i in range(n // 4)]])})


@family(1, 3, 8, 20, 60, 200)
def unions_of_large_numbers(n, draw):
    def bounds():
        low = draw.randint(-10 ** 17, 10 ** 17)
        return {"type": draw.choice(["integer", "number"]), "minimum": low,
                "maximum": low + draw.randint(1, 10 ** draw.randint(1, 17))}

    return schema({draw.choice(["anyOf", "oneOf", "allOf"]): [bounds() for _ in range(n)]})


@family(7, 97, 997, 4999, 9999, 10000)
def multiples(n, draw):
    return schema(draw.choice([
        {"type": "integer", "multipleOf": n},
        {"type": "number", "multipleOf": n / 100},
        {"type": "integer", "multipleOf": n, "minimum": -n * n, "maximum": n * n + 1},
        {"allOf": [{"type": "integer", "multipleOf": n}, {"multipleOf": n - 1}]}]))


# --- schemas of objects and arrays

@family(2, 8, 30, 100, 300, 900)
def web_of_references(n, draw):
    def node(_):
        others = [{"$ref": f"#/$defs/d{draw.randrange(n)}"} for _ in range(draw.randint(1, 4))]
        return draw.choice([{"anyOf": [*others, {"type": "null"}]}, {"type": "array", "items": others[0]},
                            {"type": "object", "properties": {f"p{i}": o for i, o in enumerate(others)}},
                            {"allOf": others}])

    return schema({"$ref": "#/$defs/d0", "$defs": {f"d{i}": node(i) for i in range(n)}})


@family(4, 12, 24, 64, 150, 400)
def towers_of_references(n, draw):
    shapes = [lambda _, below: {"anyOf": [below, {"type": "array", "items": below}]},
              lambda _, below: {"allOf": [below, below]},
              lambda _, below: {"type": "object", "properties": {"a": below, "b": below}},
              lambda _, below: {"type": "array", "prefixItems": [below, below], "items": below},
              lambda i, below: {"oneOf": [below, {"const": i}]}]
    return schema(references(n, draw.choice(shapes)))


@family(2, 6, 12, 25, 50, 70)
def deep_arrays(n, draw):
    what = {"type": "integer"}
    for _ in range(n):
        what = {"type": "array", "items": what, "minItems": draw.randint(0, 3), "maxItems": draw.randint(3, 5)}
    return schema(what)


@family(3, 20, 150, 1000, 10000, 90000)
def many_items(n, draw):
    item = draw.choice([{"type": "string", "maxLength": 20}, {"type": "boolean"}, {},
                        {"type": "array", "items": {"type": "integer"}, "minItems": min(n, 300)}])
    return schema({"type": "array", "items": item, "minItems": draw.randint(0, n), "maxItems": n})


@family(2, 10, 40, 150, 600, 2500)
def many_properties(n, draw):
    names = [f"property_{i}" for i in range(n)]
    return schema({"type": "object", "properties": {name: {"type": "integer"} for name in names},
                   "required": draw.choice([[], names, names[::2]]),
                   **draw.choice([{}, {"minProperties": n // 2}, {"maxProperties": n // 2},
                                  {"additionalProperties": False, "minProperties": n // 3}])})


@family(1, 2, 3, 4, 5, 6)
def patterns_of_names(n, draw):
    patterns = [f"^.*{c}.{{{draw.randint(0, 12)}}}$" for c in "abcdef"]
    return schema({"type": "object", "patternProperties": {p: {"type": "integer"} for p in patterns[:n]},
                   **draw.choice([{}, {"propertyNames": {"pattern": f"^[a-z]{{{n},{40 * n}}}$"}},
                                  {"propertyNames": {"enum": [f"k{i}" for i in range(200 * n)]}},
                                  {"minProperties": n}])})


@family(2, 4, 8, 16, 30, 60)
def towers_of_not(n, draw):
    what = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}
    for i in range(n):
        what = draw.choice([
            lambda w: {"not": w},
            lambda w: {"if": w, "then": {"required": ["b"]}, "else": {"type": "string"}},
            lambda w: {"oneOf": [w, {"type": "string", "minLength": 2}]},
            lambda w: {"not": {"anyOf": [w, {"const": i}]}},
            lambda w: {"anyOf": [{"not": w}, {"type": "null"}]}])(what)
    return schema(what)


@family(1, 2, 4, 8, 16, 32)
def unevaluated(n, draw):
    parts = [{"properties": {f"p{i}": {"type": "integer"}, "q": {}}, **draw.choice([{}, {"required": [f"p{i}"]}])}
             for i in range(n)]
    return schema(draw.choice([
        {"type": "object", draw.choice(["anyOf", "allOf", "oneOf"]): parts, "unevaluatedProperties": False},
        {"type": "array", "anyOf": [{"prefixItems": [{}] * i} for i in range(n)], "unevaluatedItems": False}]))


@family(1, 2, 3, 5, 20, 200)
def containing(n, draw):
    return schema({"type": "array", "allOf": [
        {"contains": {"const": i}, "minContains": draw.randint(0, n), "maxContains": n + draw.randint(0, 3)}
        for i in range(min(n, 7))], "maxItems": draw.choice([n + 5, 40 * n])})


@family(2, 4, 8, 12, 20, 40)
def combinations(n, draw):
    return schema({"allOf": [{draw.choice(["anyOf", "oneOf"]): [
        {"minLength": i}, {"maxLength": 40 + i}, *([{"type": "integer", "minimum": i}] if draw.random() < 0.5 else [])]}
        for i in range(1, n + 1)]})


@family(2, 5, 10, 30, 100, 300)
def dependencies(n, draw):
    def names(i):
        return [f"p{(i + step) % n}" for step in range(1, draw.randint(2, 4))]

    return schema({"type": "object", "properties": {f"p{i}": {} for i in range(n)}, **draw.choice([
        {"dependentRequired": {f"p{i}": names(i) for i in range(n)}},
        {"dependentSchemas": {f"p{i}": {"required": names(i)} for i in range(n)}}])})


@family(3, 10, 30, 99, 101, 400)
def unique_items(n, draw):
    return schema({"type": "array", "uniqueItems": True, "minItems": draw.randint(0, n),
                   "items": draw.choice([{"enum": [f"v{i}" for i in range(n)]}, {"type": "integer", "minimum": 1,
                                                                                "maximum": n}])})


@family(1, 10, 100, 1000, 5000, 20000)
def formats(n, draw):
    kinds = ["date", "time", "date-time", "uuid", "ipv4", "email", "hostname", "uri"]
    return schema({"type": "array", "maxItems": n, "items": {"allOf": [
        {"type": "string", "format": draw.choice(kinds)}, {"pattern": draw.choice("0123") + f".{{{n % 50}}}"}]}})


# --- grammars

@family(1, 2, 3, 5, 9, 20)
def ambiguous_recursion(n, draw):
    ways = [f'"{draw.choice("ab")}"' + " e" * i for i in range(n + 1)] + draw.choice([[], ['""']])
    if draw.random() < 0.5:
        return grammar("root ::= e", "e ::= " + " | ".join(ways))
    return grammar("start: e", "e: " + " | ".join(ways))


@family(4, 12, 24, 64, 200, 1000)
def rules_that_say_two(n, draw):
    if draw.random() < 0.5:
        return grammar(f"root ::= r{n}", 'r0 ::= "a" | "b"?', *(f"r{i} ::= r{i - 1} r{i - 1}" for i in range(1, n + 1)))
    return grammar(f"start: r{n}", 'r0: "a" | "b"', *(f"r{i}: r{i - 1} r{i - 1}?" for i in range(1, n + 1)))


@family(5, 30, 200, 1500, 9000, 60000)
def counts_in_grammars(n, draw):
    return draw.choice([
        lambda: grammar(f"root ::= ([a-z]{{0,{n}}} \" \"?){{{draw.randint(1, 5)}}}"),
        lambda: grammar(f'root ::= (x | x x | x x x){{{n}}} "."', "x ::= [^.]"),
        lambda: grammar(f"start: (WORD \" \"?) ~ 1..{n}", "WORD: /.{1,30}/"),
        lambda: grammar(f"start: A ~ {n} B ~ 0..{n}", 'A: "a" | "aa"', 'B: "a"i | /[ab]/')])()


@family(2, 6, 20, 80, 300, 1500)
def terminals(n, draw):
    names = [f"T{i}" for i in range(n)]
    made = [f"{name}: /{draw.choice(['[a-z]+', '.{0,9}', 'a*b*', chr(92) + 'w+'])}/ | \"{name}\"i" for name in names]
    return grammar("start: (" + " | ".join(names) + ")*", *made, *draw.choice([[], ["%ignore \" \""], ["%ignore /[a-z ]/"]]))


@family(2, 8, 40, 100, 300, 2000)
def deep_groups(n, draw):
    begin, end = draw.choice([("(", ")"), ("(", ")?"), ("(", ")*"), ("(", ")+")])
    return draw.choice([lambda: grammar(f'root ::= {begin * n}"a"{end * n}'), lambda: regex(begin * n + "a" + end * n)])()
