#!/usr/bin/env python3
"""Writes lark.json: for each grammar which of all short texts over an alphabet Lark itself parses. Run by hand, not by
CI.

    python -m pip install lark
    python tests/grammar/make_lark.py

Lark runs as Earley's parser with the lexer "dynamic_complete", which tries every way to cut a text into terminals, as
an automaton does. What is ignored may stand before a terminal here, not behind the last one: texts that end so are
left out.
"""

import itertools
import json
from pathlib import Path

import lark

# (what it shows, grammar, alphabet, longest text, characters that are ignored)
CASES = [
    ("alternatives, groups, optional parts", """
        // a comment
        start: greeting ("," name)? "!"   # another
             | [ "b" ] "y"
        greeting: "h" | "i"
        name: /[a-b]/ ~ 1..2
     """, "hi,ab!y", 5, ""),
    ("operators", 'start: "a"~2 "b"+ "c"* "d"? ("ab" | "c")~0..2\n', "abcd", 7, ""),
    ("left recursion", """
        ?start: sum
        ?sum: product | sum "+" product -> add | sum "-" product -> sub
        ?product: atom | product "*" atom -> mul
        ?atom: NUMBER | "-" atom | "(" sum ")"
        NUMBER: "1".."2"+
     """, "12+-*()", 5, ""),
    ("left recursion of rules that may be empty", 'start: start "a" start | | "b"\n', "ab", 7, ""),
    ("what is ignored, before any terminal", """
        start: NAME "=" value ("," NAME "=" value)*
        value: "[" [value ("," value)*] "]" | INT
        NAME: "a" "b"?
        INT: /[0-1]/+
        %ignore " "
     """, "ab=[],1 ", 5, " "),
    ("no lexer: a keyword is a name too", """
        start: "if" NAME | NAME "=" NAME
        NAME: /[if]+/
        %ignore /-+/
     """, "if=-", 6, "-"),
    ("terminals of terminals, priorities, underscores, modifiers", """
        !start: _ab (_SEP _ab)*
        _ab: A B | B
        A.2: "a" | C
        B.-1: "b"i "x"?
        C: /c|d/i
        _SEP: "," ","?
     """, "abBcDx,", 5, ""),
    ("regular expressions", r"""
        start: /[^a\/]\//  | /(a|b){2,3}x?/ "\\" | /a.c/s | /\d\x41/ | /[a-c]+?\./
     """, "ab/x\\\nc0A.", 4, ""),
    ("escapes in texts", r"""
        start: "\"" "\\n" | "\n\t" | "\x41\u0062" | "//"
     """, "\"\\n\n\tAb/", 4, ""),
    ("common numbers", """
        %import common.SIGNED_NUMBER
        %import common.INT -> WHOLE
        start: SIGNED_NUMBER | WHOLE ":" WHOLE
     """, "01.e+-:", 5, ""),
    ("more common terminals", """
        %import common (CNAME, ESCAPED_STRING, FLOAT, SIGNED_INT, WORD)
        start: CNAME "=" CNAME | ESCAPED_STRING | FLOAT "f" | SIGNED_INT "i" | "w" WORD
     """, "a_1=\".-fiw", 4, ""),
    ("common space and comments", """
        %import common.WS_INLINE
        %import common.NEWLINE
        %import common.C_COMMENT
        %import common.SH_COMMENT
        start: "x" NEWLINE "x" | C_COMMENT "x" | SH_COMMENT NEWLINE
        %ignore WS_INLINE
     """, "x\n*/# ", 6, " "),
    ("a rule that goes on in further lines", """
        start: "a"
          | b

          | "c"  // the last
        b: ( "b"
             | "bb" ) "d"
     """, "abcd", 4, ""),
]


def accepted(grammar, alphabet, longest, ignored):
    parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete", ambiguity="resolve")
    for length in range(longest + 1):
        for letters in itertools.product(alphabet, repeat=length):
            text = "".join(letters)
            if text and text[-1] in ignored:
                continue
            try:
                parser.parse(text)
            except lark.exceptions.LarkError:
                continue
            yield text


def main():
    out = Path(__file__).with_name("lark.json")
    cases = []
    for what, grammar, alphabet, longest, ignored in CASES:
        texts = list(accepted(grammar, alphabet, longest, ignored))
        print(f"{what}: {len(texts)} texts")
        cases.append({"what": what, "grammar": grammar, "alphabet": alphabet, "longest": longest, "ignored": ignored,
                      "accepted": texts})
    lines = ",\n".join(json.dumps(case) for case in cases)
    out.write_text(f'{{"made with": "lark {lark.__version__}", "cases": [\n{lines}\n]}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()
