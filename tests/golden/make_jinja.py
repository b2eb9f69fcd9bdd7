#!/usr/bin/env python3
"""Writes jinja.jsonl: what Jinja2 makes of small templates.

Jinja2 is set up as Hugging Face sets it up for chat templates, but templates may change lists and
dicts. The first row holds the variables that all templates get; each further row a template and
its output, or the type of its error.
"""

import argparse
import datetime
import json
import pathlib
import re

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)

VARIABLES = {
    "n": 7,
    "zero": 0,
    "neg": -7,
    "f": 2.5,
    "big": 18446744073709551615,
    "t": True,
    "no": False,
    "nil": None,
    "s": "Hello, World",
    "empty": "",
    "u": "Grüße, 世界! 🙂é",
    "spaced": "  \t padded text \n ",
    "lines": "one\n  two\r\n\nthree\n",
    "html": "<a href=\"x\">Tom & 'Jerry'</a>",
    "xs": [3, 1, 2],
    "words": ["banana", "Apple", "cherry", "apple"],
    "mixed": [1, "a", None, True, 2.0, [1, 2], {"k": "v"}],
    "nested": [[1, [2, 3]], [4, [5, 6]]],
    "d": {"b": 1, "a": 2, "C": 3, "items": "own", "x y": 4},
    "deep": {"a": {"b": {"c": [10, 20, {"z": "end"}]}}},
    "users": [
        {"name": "Ann", "age": 30, "city": "Rome", "tags": ["x", "y"], "ok": True},
        {"name": "bob", "age": 25, "city": "rome", "tags": [], "ok": False},
        {"name": "Cid", "age": 30, "city": "Oslo", "tags": ["z"], "ok": True},
        {"name": "dan", "city": "Oslo", "ok": False},
    ],
    "tree": [
        {"v": 1, "kids": [{"v": 2, "kids": []}, {"v": 3, "kids": [{"v": 4, "kids": []}]}]},
        {"v": 5, "kids": []},
    ],
    "json_like": {"a": [1, 2.5, None, True, "é\"\\\n\t\u0001\u007f"], "b": {}, "c": [], "é": "🙂"},
}

# Each is put between {{ and }}.
EXPRESSIONS = r"""
1
-1
+5
- -3
1_000
0x1F
0b101
0o17
1.5
1e3
1.5e-7
1e16
1e15
123456789012345680.0
1.0
0.1 + 0.2
1 / 3
10 / 2
1e308 * 10
-(1e308 * 10)
7 // 2
-7 // 2
7 // -2
7.5 // 2
-7.5 // 2
7 % 3
-7 % 3
7 % -3
-7.5 % 2
7.5 % -2
2 ** 10
2 ** -1
2 ** 0.5
(-2) ** 2
-2 ** 2
2 ** 3 ** 2
2 ** 100
10 ** 20
0 ** 0
1 / 0
1 // 0
1 % 0
1.0 / 0
0.0 ** -1
2 + 3 * 4
(2 + 3) * 4
2 - 3 - 4
2 * 3 % 4
100 // 7 * 2
1 + 2 ~ 3 + 4
1 ~ 2 ~ 3
"a" ~ 1 ~ none ~ true ~ 1.5 ~ missing
"a" + "b"
"a" "b" 'c'
"a" + 1
1 + "a"
[1] + [2]
(1,) + (2, 3)
[1] + (2,)
"ab" * 3
3 * "ab"
"ab" * -1
[1, 2] * 2
(1,) * 3
"ab" * 1.5
[1] * none
true + true
true + 1.5
-true
+true
not 1
not not ""
-"a"
+"a"
-missing
none + 1
missing + 1
1 + missing
"a" + missing
missing * 2
big
big + 1
-big
n
n + f
n * f
neg
t
nil
missing
missing ~ "x"
[missing]
[none, true, 1, 1.0, "a'b", 'a"b', "a'b\"c", "\n\t\\"]
{"a": 1, 2: "b", none: [], true: {}}
(1, 2)
(1,)
()
[]
{}
1, 2
[1, 2,]
{"a": 1,}
[[1, [2]], (3, {"k": (4,)})]
"é世🙂"
["é世🙂", "\u200b\x7f\x80\u00a0\U0001F642"]
"\x41\u00e9\U0001F642\101\7"
"\q\z"
"a\
b"
'it''s'
"tab\tend"
1 == 1.0
1 == true
0 == false
"1" == 1
"a" == 'a'
[1, 2] == [1, 2]
[1, 2] == (1, 2)
(1, 2) == (1, 2.0)
{"a": 1, "b": 2} == {"b": 2, "a": 1}
{"a": 1} == {"a": 2}
none == none
none == missing
missing == missing
missing == 0
missing != none
1 != 2
1 < 2
2 <= 2
3 > 4
3 >= 3.0
"a" < "b"
"Z" < "a"
"é" > "z"
[1, 2] < [1, 3]
[1] < [1, 0]
(1, "a") < (1, "b")
1 < "a"
none < 1
missing < 1
[1] < (2,)
{} < {}
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 > 0
1 < 2 == true
1 == 1 == 1
2 in [1, 2]
4 not in [1, 2]
"a" in "cat"
"" in "cat"
"x" not in "cat"
1 in "a1"
"b" in d
"zz" in d
"v" in {"k": "v"}
1 in 5
1 in none
1 in missing
"a" in missing
none in [none]
[1] in [[1]]
[1] in d
true and false
1 and 2
0 and 2
"" or "x"
"y" or "x"
none or 0
0 or none
missing or "dflt"
missing and 1
not missing
true or false and false
not true or true
not 1 == 2
not "a" in "b"
"yes" if t else "no"
"yes" if no else "no"
"yes" if no
("yes" if no) ~ "|"
1 if 0 else 2 if 0 else 3
[1 if true else 2]
(1 if true else 2) + 1
"a" if missing else "b"
"a" if missing is defined else "b"
xs[0]
xs[-1]
xs[3]
xs[-4]
xs[true]
xs["0"]
xs.0
xs.1
nested.0.1.0
nested[1][1][0]
xs[1:]
xs[:1]
xs[:-1]
xs[-2:]
xs[::2]
xs[::-1]
xs[2:0:-1]
xs[5:]
xs[-10:10]
xs[::0]
xs[none:none]
xs["a":]
(1, 2, 3, 4)[1:3]
range(10)[2:8:2] | list
s[0]
s[-1]
s[100]
s[0:5]
s[-5:]
s[::-1]
s[::2]
u[0]
u[2]
u[-1]
u[-2]
u[3:6]
u[::-1]
u[7:9]
u[100:]
u|length
""[0]
""[1:2]
n[0]
nil[0]
nil.x
nil[1:2]
n.x
n.x.y
missing.x
missing[0]
missing[1:]
missing()
d.a
d["a"]
d["x y"]
d.zz
d["zz"]
d.zz.y
d["items"]
d[none]
d[[1]]
d.a.b
deep.a.b.c[2].z
deep["a"]["b"]["c"][-1]["z"]
{1: "one"}[1]
{1: "one"}[1.0]
{1: "one"}[true]
{(1, 2): "t"}[1, 2]
{(1, 2): "t"}[(1, 2)]
{[1]: 2}
{"a": 1, "a": 2}
d.items() | list
d.keys() | list
d.values() | list
d.keys()
d.values()
{"a": 1}.items()
d.keys()|length
d.keys()[0]
"a" in d.keys()
d.get("a")
d.get("zz")
d.get("zz", 5)
d.get()
d.get([])
{"a": 1}.copy()
{"a": 1}.pop("a")
{"a": 1}.pop("b")
{"a": 1}.pop("b", 9)
{"a": 1}.setdefault("a", 3)
{"a": 1}.setdefault("b", 3)
{"a": 1}.popitem()
{}.popitem()
dict(a=1, b=2)
dict({"a": 1}, b=2)
dict([("a", 1), ("b", 2)])
dict([1])
dict()
[3, 1].index(1)
[3, 1].index(9)
[1, 1, 2].count(1)
(1, 1).count(1)
(1, 2).index(2)
[1, 2].pop()
[1, 2].pop(0)
[1, 2].pop(5)
[].pop()
[1, 2].nope
[1, 2].nope()
range(3)
range(1, 4)
range(0, 10, 3)
range(3) | list
range(1, 4) | list
range(5, 0, -2) | list
range(0)
range(3)[1]
range(3)[-1]
range(3)|length
range("a")
range(1, 2, 0)
range(100001)
range(100000)|length
1 in range(3)
s.upper()
s.lower()
s.title()
s.capitalize()
s.swapcase()
"they're bill's".title()
"straße ß".upper()
"ÄÖÜ".lower()
"hello wORLD".capitalize()
spaced.strip()
spaced.lstrip()
spaced.rstrip()
"xxaxx".strip("x")
"xyaxy".strip("yx")
"xxaxx".lstrip("x")
"xxaxx".rstrip("x")
"éaé".strip("é")
"a".strip(1)
"a,b,c".split(",")
"a,b,c".split(",", 1)
"a,b,c".rsplit(",", 1)
"a,b,c".split(sep=",", maxsplit=1)
"a--b--c".split("--")
" a  b c ".split()
" a  b c ".split(none, 1)
" a  b c ".rsplit(none, 1)
" a  b c ".split(" ")
"".split()
"".split(",")
"abc".split("")
"a,b".split(",")[-1]
"aXbXc".partition("X")
"aXbXc".rpartition("X")
"abc".partition("X")
"abc".rpartition("X")
lines.splitlines()
lines.splitlines(true)
"".splitlines()
"a\x0bb\x0cc\x1cd\x85e\u2028f".splitlines()
s.startswith("Hell")
s.startswith("ell", 1)
s.startswith(("x", "Hell"))
s.startswith("")
s.endswith("rld")
s.endswith(("x", "ld"))
s.endswith("Hello", 0, 5)
s.startswith(1)
s.startswith(["Hell"])
s.find("o")
s.find("o", 5)
s.find("zzz")
s.find("o", 0, 3)
s.rfind("o")
s.index("W")
s.index("zzz")
s.rindex("o")
u.find("世")
u.find("!")
u.rfind("é")
s.count("l")
s.count("")
"aaaa".count("aa")
s.replace("l", "L")
s.replace("l", "L", 1)
s.replace("", "-")
"ab".replace("", "-", 2)
s.replace("zz", "y")
s.replace("World", "")
"-".join(["a", "b"])
"-".join([])
"-".join(["a", 1])
"-".join("abc")
"".join(["x", "y"])
"abc".removeprefix("ab")
"abc".removeprefix("x")
"abc".removesuffix("bc")
"abc".removesuffix("x")
"7".zfill(3)
"-7".zfill(4)
"abc".zfill(2)
"a".ljust(4) ~ "|"
"a".rjust(4, "*")
"a".center(4, "*")
"ab".center(5, "*")
"é".center(4, "世")
"a".rjust(4, "**")
"123".isdigit()
"12a".isdigit()
"".isdigit()
"²".isdigit()
"²".isdecimal()
"½".isnumeric()
"abc".isalpha()
"ab1".isalpha()
"世界".isalpha()
"ab1".isalnum()
"ab 1".isalnum()
" \t\n".isspace()
"".isspace()
"ABC".isupper()
"ABc".isupper()
"A1".isupper()
"1".isupper()
"abc".islower()
"Ab C".istitle()
"Ab Cd".istitle()
"abc".isascii()
"é".isascii()
"abc".nope
"abc".nope()
"{} {}".format(1, "b")
"{0} {1} {0}".format("a", "b")
"{x}-{y}".format(x=1, y=2)
"{{}} {}".format(5)
"{:>5}|{:<5}|{:^5}|".format("a", "b", "c")
"{:05d}".format(42)
"{:+d}".format(42)
"{:.2f}".format(3.14159)
"{:,}".format(1234567)
"{:x} {:X} {:#x} {:b} {:o}".format(255, 255, 255, 5, 8)
"{:e}".format(12345.678)
"{:.1%}".format(0.256)
"{:*^9}".format("mid")
"{!r}".format("a")
"{0.name}".format(users[0])
"{0[name]}".format(users[0])
"{}".format()
"{".format(1)
"{:.3}".format("abcdef")
"{:5}|".format(3)
"{:5}|".format("3")
"{:.3g}".format(1234.5)
"%s and %s" % ("a", 1)
"%s" % "a"
"%s" % [1, 2]
"%d items" % 5
"%5d|%-5d|%05d" % (1, 2, 3)
"%.2f" % 3.14159
"%+d" % 5
"%x %X %o" % (255, 255, 8)
"%r" % "a"
"%(a)s-%(b)s" % {"a": 1, "b": 2}
"%%" % ()
"100%%" % ()
"%s" % ()
"%s" % (1, 2)
"%d" % "a"
"%5s|%-5s|" % ("a", "b")
"%.1s" % "abc"
"%e" % 1234.5
"%g" % 0.00001
"%i" % 3.7
"%y" % 1
s | upper
s | lower
s | capitalize
s | title
"foo-bar (baz) [qux] don't" | title
n | upper
missing | upper
nil | upper
spaced | trim
"xxaxx" | trim("x")
n | trim
s | length
xs | length
d | length
missing | length
n | length
s | count
none | length
xs | first
xs | last
s | first
s | last
[] | first
[] | last
d | first
missing | first
n | first
xs | join
xs | join(", ")
xs | join(d="-")
users | join(", ", attribute="name")
mixed | join("|")
"abc" | join("-")
n | join
missing | join
xs | list
s | list
d | list
n | list
missing | list
u | list
n | string
f | string
nil | string
mixed | string
"42" | int
"42.7" | int
" 42 " | int
"abc" | int
"abc" | int(5)
"abc" | int(default=7)
"0x1A" | int(base=16)
"0x1A" | int(0, 16)
"1A" | int(0, 16)
"1_000" | int
2.9 | int
-2.9 | int
true | int
none | int
missing | int
[] | int
"1e3" | int
"3.14" | float
"abc" | float
"abc" | float(1.5)
"1e400" | float
"-1e-400" | float
"inf" | float
"nan" | float
" 2.5 " | float
3 | float
none | float
missing | float
-5 | abs
-2.5 | abs
true | abs
"a" | abs
2.5 | round
3.5 | round
-2.5 | round
2.567 | round(2)
2.675 | round(2)
1234.5 | round(-2)
1250 | round(-2)
1350 | round(-2)
-1250 | round(-2)
42 | round
42 | round(2)
2.1 | round(method="ceil")
2.9 | round(0, "floor")
2.123 | round(2, "ceil")
2 | round(method="floor")
"a" | round
missing | default("x")
missing | default
missing | d("x")
none | default("x")
none | default("x", true)
"" | default("x", boolean=true)
0 | default(5)
d.zz | default("y")
missing.x | default("y")
default("x")
s | replace("l", "L")
s | replace("l", "L", 1)
s | replace("l", "L", count=2)
n | replace("7", "8")
123 | replace(2, 9)
xs | reverse | list
s | reverse
u | reverse
range(3) | reverse | list
xs | sort
xs | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
words | sort(reverse=true)
users | sort(attribute="age") | map(attribute="name") | list
users[:3] | sort(attribute="age") | map(attribute="name") | list
users[:3] | sort(attribute="age,name") | map(attribute="name") | list
users[:3] | sort(attribute="age", reverse=true) | map(attribute="name") | list
mixed | sort
"hello" | sort
d | sort
words | unique | list
words | unique(case_sensitive=true) | list
[1, 1.0, true, 2] | unique | list
users | unique(attribute="city") | map(attribute="name") | list
[[1], [1]] | unique | list
xs | sum
[] | sum
[1.5, 2] | sum
users[:3] | sum(attribute="age")
xs | sum(start=10)
[[1], [2]] | sum(start=[])
["a"] | sum
words | min
words | max
xs | min
xs | max
[] | min
users[:3] | max(attribute="age")
users[:3] | min(attribute="age")
[1, "a"] | max
words | min(case_sensitive=true)
d | dictsort
d | dictsort(true)
d | dictsort(by="value") 
{"b": 1, "a": 2} | dictsort(by="value")
{"b": 1, "a": 2} | dictsort(reverse=true)
{"b": 1, "a": 2} | dictsort(false, "value")
{"b": 1} | dictsort(by="x")
xs | dictsort
d | items | list
missing | items | list
xs | items | list
"{}" | items | list
users | map(attribute="name") | list
users | map(attribute="age") | list
users | map(attribute="age", default=0) | list
users | map(attribute="tags.0", default="-") | list
words | map("upper") | list
words | map("replace", "a", "4") | list
[" a ", "b "] | map("trim") | list
xs | map("string") | join("+")
xs | map("nope") | list
xs | map | list
xs | map("float") | map("round", 1) | list
[] | map("upper") | list
missing | map("upper") | list
n | map("upper") | list
deep.a.b.c[2:] | map(attribute="z") | list
range(6) | select("odd") | list
range(6) | reject("odd") | list
range(6) | select("divisibleby", 3) | list
range(6) | select(">", 3) | list
range(6) | select("in", [1, 5]) | list
[0, 1, "", "a", none] | select | list
[0, 1, "", "a", none] | reject | list
mixed | select("string") | list
mixed | reject("none") | list
users | selectattr("ok") | map(attribute="name") | list
users | rejectattr("ok") | map(attribute="name") | list
users | selectattr("age", "equalto", 30) | map(attribute="name") | list
users | selectattr("age", "defined") | map(attribute="name") | list
users | selectattr("name", "in", ["Ann", "dan"]) | list | length
users | rejectattr("city", "eq", "Oslo") | map(attribute="name") | list
users | selectattr("age", "gt", 26) | list
users | selectattr | list
users | selectattr("age", "nope") | list
users | selectattr("zz.y") | list
(users | selectattr("ok")) is iterable
users | groupby("city")
users[:3] | groupby("city") | map("first") | list
users | groupby("city", case_sensitive=true) | map("first") | list
users | groupby("age") | list | length
users | groupby("age", default=0) | map(attribute="grouper") | list
(users | groupby("city"))[0].list | length
(users | groupby("city"))[0].grouper
xs | batch(2) | list
xs | batch(2, "-") | list
[] | batch(2) | list
range(10) | slice(3) | list
range(10) | slice(3, "x") | list
xs | slice(0) | list
html | escape
html | e
html | e | e
html | forceescape
html | e | forceescape
n | e
html | safe
html | safe | escape
("<b>" | safe) + "<i>"
"<i>" + ("<b>" | safe)
("<b>" | safe) ~ "<i>"
("<b>" | safe) * 2 + "<"
("<b>" | safe) is escaped
"<b>" is escaped
"a b&c/d?é" | urlencode
{"a b": "c&d", "e": 1} | urlencode
n | urlencode
"a b-c d_e 1.5 é" | wordcount
"" | wordcount
"abc" | center(9) ~ "|"
"abcd" | center(9) ~ "|"
"hello world foo" | truncate(10)
"hello world foo" | truncate(10, true)
"hello world foo" | truncate(10, true, "!")
"hello world foo" | truncate(12, leeway=0)
"hello world" | truncate(10)
"hello" | truncate(2)
lines | indent
lines | indent(2, true)
lines | indent(2, blank=true)
lines | indent(width=">>", first=true)
"a\nb" | indent(0)
"a\n\nb" | indent(3)
"" | indent(3, true)
n | indent
"%s-%s" | format("a", 1)
"%(x)s" | format(x=5)
"%s" | format(1, x=2)
"%d%%" | format(50)
mixed | tojson
d | tojson
json_like | tojson
json_like | tojson(indent=2)
json_like | tojson(indent=0)
json_like | tojson(indent=4, ensure_ascii=true)
json_like | tojson(ensure_ascii=true)
json_like | tojson(separators=(",", ":"))
json_like | tojson(indent=1, separators=(", ", "="))
json_like | tojson(indent="--")
json_like | tojson(indent="\t")
{"b": {"d": 1, "c": 2}, "a": 3} | tojson(sort_keys=true)
{1: 2, none: 3, true: 4, 1.5: 5} | tojson
{(1, 2): 3} | tojson
(1, "a") | tojson
"a'b\"c</script>" | tojson
html | tojson
big | tojson
1e16 | tojson
1.0 | tojson
("inf" | float) | tojson
("nan" | float) | tojson
missing | tojson
[missing] | tojson
range(3) | tojson
d.items() | tojson
none | tojson
[] | tojson(indent=2)
{"a": []} | tojson(indent=2)
{"a": {}} | tojson(indent=2)
"\u2028\u2029" | tojson
users[0] | tojson
users[0] | attr("name")
s | attr("nope")
d | attr("a")
s | nope
s is nope
s | upper | lower | title
-2 | abs
- 2 | abs + 1
2 + -3 | abs
"a" | upper ~ "b" | upper
not missing | default(true)
n is defined
missing is defined
missing is undefined
d.zz is defined
d.zz.y is defined
missing.x is defined
nil is none
n is none
missing is none
nil is not none
t is boolean
n is boolean
t is true
no is false
n is true
1 is true
n is integer
t is integer
f is integer
f is float
n is float
n is number
t is number
f is number
s is number
s is string
n is string
nil is string
d is mapping
xs is mapping
xs is sequence
s is sequence
d is sequence
n is sequence
missing is sequence
d.keys() is sequence
d.keys() is iterable
xs is iterable
s is iterable
n is iterable
nil is iterable
missing is iterable
(xs | map("string")) is sequence
range is callable
s.upper is callable
n is callable
missing is callable
3 is odd
4 is odd
4 is even
-3 is odd
2.0 is even
"a" is odd
6 is divisibleby 3
7 is divisibleby(3)
7 is divisibleby 0
"abc" is lower
"aBc" is lower
"ABC" is upper
"123" is upper
n is lower
1 is sameas 1
t is sameas true
1 is sameas true
nil is sameas none
xs is sameas xs
1 is eq 1
1 is equalto 2
1 is == 1
1 is ne 2
1 is lt 2
1 is lessthan 2
2 is le 2
2 is gt 1
2 is greaterthan 1
2 is ge 3
1 is lt "a"
1 is in [1, 2]
3 is not in [1, 2]
"a" is in "abc"
"upper" is filter
"nope" is filter
"odd" is test
"nope" is test
n is not defined
n is defined and n > 3
n is defined or false
missing is defined and missing.x
n is odd if t else 5
n is defined is true
namespace(a=1).a
namespace({"a": 1}, b=2).b
namespace(a=1).zz
namespace(a=1)["a"]
namespace(a=1)
namespace(a=1).zz.y
cycler("a", "b").next()
cycler()
joiner("|")() ~ "x"
strftime_now("%Y-%m-%d %H:%M:%S")
strftime_now("%d %b %Y")
strftime_now("%B %-d, %Y, %A %j %y %I%p %a %%")
strftime_now("")
strftime_now(5)
raise_exception("no: " ~ n)
raise_exception()
range(3) | list | length
s.upper().lower().split(",")[0].strip()
[1, 2, 3][1:][0]
{"a": [1, {"b": "c"}]}.a[1].b
"abc"["upper"]()
d["get"]("a")
d["a"] + d["b"]
n(1)
s()
s.upper(1)
s.replace("a")
s.split(",", 1, 2)
s.split(nope=1)
range(*[1, 4]) | list
dict(**{"a": 1})
range(*5)
dict(**5)
"{}{}".format(*["a", "b"])
caller()
loop
varargs
true
True
TRUE
None
none
x y
1 2
1 +
+ 
( 1
1 )
[1
{"a"}
{"a": }
a.
a.[0]
a..b
a |
a | upper(
"abc
'abc"
a is
a is not
f(a=1, 2)
f(a=1, a=2)
a ! b
a & b
a = b
a if
a if else b
$
1.5.5
.5
5.
1..2
0123
00
0_0
12abc
é
"""

# Whole templates.
TEMPLATES = [
    "", "plain", "\n", "a\n", "a\n\n", "a\r\nb\rc\n", "{", "{ {", "}}", "%}", "a{b}c", "#}", "{}",
    "{{n}}", "a {{ n }} b", "{{- n -}}", "a {{- n -}} b", "a\n {{- n -}} \n b",
    "a\n  {{ n }}\nb", "{{ n }}\n", "{{ n }}\n\n", "{{+ n }}", "{{ n +}}",
    "{% if t %}a{% endif %}", "{% if t %}\na\n{% endif %}\nb", "  {% if t %}\n  a\n  {% endif %}\nb",
    "x  {% if t %}  a  {% endif %}  y", "x {%- if t -%} a {%- endif -%} y",
    "x\n\n  {%- if t %}\n a\n{%- endif %}\n y", "  {%+ if t %}a{% endif %}", "{% if t +%}\na{% endif %}",
    "{% if t -%}\n\n  a{% endif %}", "\t{% if t %}\ta{% endif %}", "a\n\t {% if t %}b{% endif %}",
    "{% if t %}{% endif %}\n{% if t %}{% endif %}\n\nx", "\u00a0{% if t %}x{% endif %}\u00a0",
    "{{ n }}  {% if t %}x{% endif %}", "{% if t %}x{% endif %}  {% if t %}y{% endif %}",
    "{# c #}", "a{# c #}b", "a {#- c -#} b", "a\n  {# c #}\nb", "{# multi\nline #}\nx", "{# {{ n }} #}",
    "{##}x", "{#-#}x", "{#--#}x", "{#+#}x", "  {#+ c #}x", "{# c +#}\nx", "{# c", "a {# c # } b",
    "{% raw %}{{ n }}{% if %}{% endraw %}", "a {%- raw -%} {{ x }} {%- endraw -%} b",
    "{% raw %}\n{{ n }}\n{% endraw %}\nx", "{% raw %}a", "{%raw%}{%endraw%}", "  {% raw %}  a  {% endraw %}  b",
    "{% raw x %}a{% endraw %}", "{% raw %}{# c #}{% endraw +%}\nz",
    "{{ '}}' }}", "{{ '{{' }}", "{{ \"%}\" }}", "{% set x = '%}' %}{{ x }}", "{{ {'a': {'b': 1}} }}",
    "{{ {'a': {'b': 1}}}}", "{{ [[1]] }}", "{{ ( n }}", "{{ n ) }}", "{{ n", "{{", "{%", "{% %}", "{{ }}",
    "{% if %}{% endif %}", "{% if t %}", "{% endif %}", "{% else %}", "{% if t %}{% endfor %}", "{% for %}",
    "{% nope %}", "{% include 'x' %}", "{% extends 'x' %}", "{% import 'x' as y %}", "{% do x %}",
    "{% if n == 7 %}a{% elif n == 8 %}b{% else %}c{% endif %}",
    "{% if n == 8 %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if no %}a{% elif nil %}b{% else %}c{% endif %}", "{% if no %}a{% endif %}",
    "{% if t: %}a{% endif %}", "{% if t and not no %}a{% endif %}", "{% if 1, 2 %}a{% endif %}",
    "{% for x in xs %}{{ x }},{% endfor %}", "{% for x in xs %}\n{{ x }}\n{% endfor %}\n.",
    "{% for x in [] %}a{% else %}none{% endfor %}", "{% for x in xs %}a{% else %}none{% endfor %}",
    "{% for x in missing %}a{% else %}none{% endfor %}", "{% for x in n %}a{% endfor %}",
    "{% for x in nil %}a{% endfor %}", "{% for c in s[:3] %}[{{ c }}]{% endfor %}", "{% for c in u %}[{{ c }}]{% endfor %}",
    "{% for k in d %}{{ k }} {% endfor %}", "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for a, (b, c) in nested %}{{ a }}{{ b }}{{ c }};{% endfor %}", "{% for a, b in xs %}{% endfor %}",
    "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for (a, b) in [(1, 2)] %}{{ a }}{{ b }}{% endfor %}",
    "{% for a in 1, 2, 3 %}{{ a }}{% endfor %}", "{% for x in xs if x > 1 %}{{ x }}{{ loop.length }}{{ loop.index }} {% endfor %}",
    "{% for x in xs if x > 5 %}a{% else %}none{% endfor %}", "{% for x in xs if loop %}{{ x }}{% endfor %}",
    "{% for x in range(5) if x is odd %}{{ x }}{{ ',' if not loop.last }}{% endfor %}",
    "{% for x in (xs if t else []) %}{{ x }}{% endfor %}", "{% for x in xs | sort %}{{ x }}{% endfor %}",
    "{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.depth0 }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}",
    "{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}",
    "{% for x in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %}", "{% for x in xs %}{{ loop.cycle() }}{% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }} {% endfor %}", "{% for x in [1, 1] %}{{ loop.changed() }} {% endfor %}",
    "{% for x in xs %}{{ loop }}{% endfor %}", "{% for x in xs %}{{ loop['index'] }}{% endfor %}",
    "{% for x in xs %}{{ loop.nope }}{% endfor %}", "{% for x in xs %}{{ loop.nope.y }}{% endfor %}",
    "{% for x in xs %}{{ loop|length }}{% endfor %}", "{{ loop.index }}",
    "{% for x in xs %}{% for y in [1, 2] %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}",
    "{% for x in xs %}{% set outer = loop %}{% for y in [1] %}{{ outer.index }}{% endfor %}{% endfor %}",
    "{% for x in xs | map('string') %}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ y }}{% endfor %};{% endfor %}",
    "{% for x in xs %}{% break %}{% else %}none{% endfor %}", "{% break %}", "{% if t %}{% continue %}{% endif %}",
    "{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}{% if n.kids %}({{ loop(n.kids) }}){% endif %}{% endfor %}",
    "{% for n in tree recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ loop(n.kids) }}{% endfor %}",
    "{% for n in tree %}{{ loop(n.kids) }}{% endfor %}",
    "{% set x = 1 %}{{ x }}", "{% set x = 1, 2 %}{{ x }}", "{% set x, y = 1, 2 %}{{ y }}{{ x }}", "{% set (x, y) = [3, 4] %}{{ y }}{{ x }}",
    "{% set x, y = 1 %}", "{% set x, y = 1, 2, 3 %}", "{% set x = x %}{{ x }}", "{% set x = n %}{% set n = 1 %}{{ x }}{{ n }}",
    "{% set true = 1 %}", "{% set 1 = 1 %}", "{% set x %}", "{% set x = %}", "{% set x.y = 1 %}", "{% set d.y = 1 %}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}", "{% set x = 1 %}{% for i in xs %}{% set x = i %}{% endfor %}{{ x }}",
    "{% for i in xs %}{{ q }}{% set q = i %}{% endfor %}{{ q }}", "{% set q = 0 %}{% for i in xs %}{{ q }}{% set q = i %}{{ q }};{% endfor %}",
    "{% if no %}{% set x = 1 %}{% endif %}{{ x is defined }}", "{% set ns = namespace(c=0) %}{% for i in xs %}{% set ns.c = ns.c + i %}{% endfor %}{{ ns.c }}",
    "{% set ns = namespace() %}{% set ns.a = 1 %}{% set ns.b = 'x' %}{{ ns.a }}{{ ns.b }}{{ ns }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a }}{{ ns.b }}",
    "{% set x %}a {{ n }} b{% endset %}[{{ x }}]", "{% set x | upper %}a {{ n }} b{% endset %}[{{ x }}]", "{% set x | trim | upper %}\n a \n{% endset %}[{{ x }}]",
    "{% set x %}{% set y = 1 %}{% endset %}{{ y is defined }}", "{% set ns = namespace() %}{% set ns.t %}body{% endset %}{{ ns.t }}",
    "{% set x | replace('a', '7') %}banana{% endset %}{{ x }}",
    "{% for x in xs %}{% continue %}{% else %}none{% endfor %}", "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{% else %}none{% endfor %}",
    "{% for i in xs %}{% set v %}a{% if i == 1 %}{% break %}{% endif %}{% endset %}{{ v }}{{ i }}{% endfor %}|", "{% for i in xs %}{% with j = i %}{% if j == 1 %}{% continue %}{% endif %}{{ j }}{% endwith %}{% endfor %}|",
    "{% macro m(a, b=2) %}{{ a }}-{{ b }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=4, a=5) }}{{ m() }}", "{% macro m() %}x{% endmacro %}{{ m() }}{{ m }}",
    "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}",
    "{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}", "{% macro m(a) %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}",
    "{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{{ a.x }}{% endmacro %}{{ m() }}", "{% macro m(a=1, b) %}{% endmacro %}",
    "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(5) }}", "{% macro m() %}{{ g }}{% endmacro %}{% set g = 1 %}{{ m() }}",
    "{% macro m() %}{% set z = 1 %}{{ z }}{% endmacro %}{{ m() }}{{ z is defined }}", "{% macro m() %}{{ i }}{% endmacro %}{% for i in xs %}{{ m() }}{% endfor %}.",
    "{% for i in xs %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}", "{{ m() }}{% macro m() %}x{% endmacro %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}body {{ n }}{% endcall %}", "{% macro m() %}{% for i in [1, 2] %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(x) m() %}<{{ x }}>{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}",
    "{% macro m(a) %}{{ a }}{{ caller(1, 2) }}{% endmacro %}{% call(x, y=5) m(7) %}{{ x }}{{ y }}{% endcall %}", "{% call n %}{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}",
    "{% macro a() %}[{{ caller() }}]{% endmacro %}{% macro b() %}{% call a() %}in{% endcall %}{% endmacro %}{{ b() }}", "{% macro m() %}{{ m.name }}{% endmacro %}{{ m() }}",
    "{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}\n{{ m(1) }}|", "{% macro m(x) %}{{ x | upper }}{% endmacro %}{{ m('a') | lower ~ 'B' }}{{ (m('q') + 'r').strip() }}",
    "{% filter upper %}a {{ n }} b{% endfilter %}", "{% filter replace('a', 'b') | upper %}banana{% endfilter %}", "{% filter nope %}{% endfilter %}", "{% filter upper %}{% set fq = 1 %}{% endfilter %}{{ fq is defined }}",
    "{% for i in xs %}{% filter upper %}a{% if i == 1 %}{% break %}{% endif %}{% endfilter %}{% endfor %}|",
    "{% with %}{% set w = 1 %}{{ w }}{% endwith %}{{ w is defined }}", "{% with a=1, b=2 %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "{% with n = n + 1 %}{{ n }}{% endwith %}{{ n }}", "{% with a=1, b=a %}{{ b }}{% endwith %}",
    "{% with a, b = 1, c = 2 %}{% endwith %}", "{% print n %}",
    "{% generation %}a {{ n }}{% endgeneration %}b", "{% generation %}\na\n{% endgeneration %}\nb", "{% generation %}{% set gq = 1 %}{% endgeneration %}{{ gq is defined }}",
    "{% for i in xs %}{% generation %}{{ i }}{{ loop.last }}{% endgeneration %}{% endfor %}", "{% generation %}", "{% for i in xs %}{% generation %}{% break %}{% endgeneration %}{% endfor %}",
    "{% set l = [] %}{% for x in xs %}{% set _ = l.append(x * 2) %}{% endfor %}{{ l }}", "{% set l = [1, 2] %}{{ l.extend([3]) }}{{ l.insert(0, 9) }}{{ l.insert(-1, 8) }}{{ l }}",
    "{% set l = [1, 2, 3] %}{{ l.remove(2) }}{{ l.reverse() }}{{ l }}{{ l.clear() }}{{ l }}", "{% set l = [3, 1] %}{{ l.sort() }}{{ l }}{{ l.sort(reverse=true) }}{{ l }}{{ l.remove(7) }}",
    "{% set l = [1] %}{% set m = l %}{{ m.append(2) }}{{ l }}{% set c = l.copy() %}{{ c.append(3) }}{{ l }}", "{% set l = [1, 2] %}{{ l.extend(l) }}{{ l }}",
    "{% set q = {} %}{{ q.update({'a': 1}) }}{{ q.update(b=2) }}{{ q.update([('c', 3)]) }}{{ q }}", "{% set q = {'a': 1, 'b': 2} %}{{ q.pop('a') }}{{ q }}{{ q.clear() }}{{ q }}{{ q.setdefault('z', []).append(1) }}{{ q }}",
    "{% set q = {} %}{% for i in range(20) %}{{ q.update({'k' ~ i: i}) or '' }}{% endfor %}{{ q['k13'] }}{{ q.pop('k3') }}{{ 'k3' in q }}{{ q.k19 }}{{ q | length }}{{ q.update({1: 2}) }}{{ q[1] }}{{ q[2] is defined }}",
    "{% set l = [1, 2, 3] %}{% for x in l %}{% if l | length < 6 %}{{ l.append(x) or '' }}{% endif %}{{ x }}{% endfor %}",
    "{% set g = xs | map('string') %}{{ g | join }}{{ g | join }}|{{ g | list }}", "{% set g = xs | select('odd') %}{{ 3 in g }}{{ g | list }}", "{% if [] | select %}always{% endif %}", "{% set g = xs | map('string') %}{{ g[0] is defined }}{{ g | first }}",
    "{{ xs | map('string') | length }}", "{{ xs | map('string') | last }}", "{{ xs | reverse | first }}", "{% set j = joiner(', ') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.current }}",
    "{% set self = 1 %}{{ self }}", "{{ messages is undefined }}", "{% if missing %}a{% else %}b{% endif %}", "{% if missing == none %}a{% else %}b{% endif %}", "{% if missing.x %}{% endif %}",
    "{%- for u in users -%}\n{{ u.name }}: {{ u.age | default('?') }}\n{% endfor -%}\n", "{% for u in users %}{{ '<' + u['name'] + '>' }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}",
    "{% set x = 'a' %}{% macro m() %}{{ x }}{% set x = 'b' %}{{ x }}{% endmacro %}{{ m() }}{{ x }}", "{% for x in xs %}{{ x }}{% endfor %}{{ x is defined }}", "{% for n in xs %}{{ n }}{% endfor %}{{ n }}",
    "{{ recursive }}{% for recursive in [1] %}{{ recursive }}{% endfor %}", "{% for x in xs recursive %}{{ x }}{% endfor %}", "{% for x in xs if x recursive %}{{ x }}{% endfor %}", "{{ n.__class__ }}", "{{ ''.__class__.__mro__ }}",
    "{% if 'a' in 'abc' and 'z' not in 'abc' %}ok{% endif %}", "{% if not t or n %}x{% endif %}", "{{ 'a' if n > 5 and n < 10 else 'b' }}", "{{ (n, s)[1] }}", "{{ [n, s] | first }}",
    "{% set content %}{{ s }}{% endset %}{{ content.split(',')[0] }}", "{{ '%s' | format('<' | e) }}", "line1\nline2 {{ 1/0 }}", "{{ dict(a=1).items() | list }}", "{{ 1 }}{{ 2 }}\n{{ 3 }}\n",
    "{% set m = users[0] %}{% if m.tags is defined and m.tags is iterable and m.tags is not string %}{{ m.tags | join('+') }}{% endif %}", "{{ users | selectattr('ok') | list | length }}/{{ users | length }}",
    "{{ users[::-1][0].name }}{{ users[1:][0]['name'] }}{{ (users | last).name }}", "{%- set ns = namespace(found=false, i=0) -%}\n{%- for u in users[::-1] -%}\n{%- if not ns.found and u.ok -%}{%- set ns.found = true -%}{%- set ns.i = loop.index0 -%}{%- endif -%}\n{%- endfor -%}\n{{ ns.i }}{{ ns.found }}",
]


def environment():
    """As transformers does, less the ban on changing values."""

    class Generation(jinja2.ext.Extension):
        tags = {"generation"}

        def parse(self, parser):
            line = next(parser.stream).lineno
            body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
            call = self.call_method("_render")
            return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

        def _render(self, caller):
            return caller()

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    made = jinja2.sandbox.SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    made.filters["tojson"] = tojson
    made.globals["raise_exception"] = raise_exception
    made.globals["strftime_now"] = lambda form: NOW.strftime(form)
    return made


def render(made, template):
    row = {"template": template}
    try:
        variables = json.loads(json.dumps(VARIABLES))
        row["output"] = made.from_string(template).render(**variables)
    except Exception as error:  # pylint: disable=broad-except
        row["error"] = type(error).__name__
    return row


def expressions():
    """One a line, but for a string with a line end after a backslash."""
    whole = []
    for line in EXPRESSIONS.strip("\n").split("\n"):
        if whole and whole[-1].endswith("\\"):
            whole[-1] += "\n" + line
        else:
            whole.append(line)
    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path,
                        default=pathlib.Path(__file__).parent / "jinja.jsonl")
    args = parser.parse_args()
    made = environment()
    templates = ["{{ " + expression + " }}" for expression in expressions()] + TEMPLATES
    twice = {t for t in templates if templates.count(t) > 1}
    assert not twice, twice
    with open(args.out, "w", encoding="utf-8") as out:
        for row in [{"variables": VARIABLES}] + [render(made, t) for t in templates]:
            text = json.dumps(row)
            assert not re.search(r"object at 0x", text), text
            out.write(text + "\n")


if __name__ == "__main__":
    main()
