// The interpreter against Jinja2, and its errors.
#include <thread>

#include "tests/jinja/jinja_cases.h"

namespace aerie::jinja_test {

using test::ordered_json;
using test::render_jinja;

// Made by tests/golden/make_jinja.py.
TEST(Jinja, AgreesWithJinja2) {
  const auto rows = test::read_ordered_rows("tests/golden/jinja.jsonl");
  ASSERT_GT(rows.size(), 1100u);
  const ordered_json& variables = rows[0].at("variables");
  int errors = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto source = rows[i].at("template").get<std::string>();
    const auto text = render_jinja(source, variables);
    if (rows[i].contains("error")) {
      ++errors;
      EXPECT_FALSE(text.ok()) << source << "\ngives " << *text << "\nand not " << rows[i]["error"];
    } else {
      ASSERT_TRUE(text.ok()) << source << "\n" << text.status().message();
      EXPECT_EQ(*text, rows[i].at("output").get<std::string>()) << source;
    }
  }
  EXPECT_GT(errors, 200);
}

struct Refused {
  const char* source;
  StatusCode code;
  const char* message;
};

// What cannot be parsed: where, and why.
TEST(Jinja, BrokenTemplates) {
  const Refused cases[] = {
      {"{{ n", StatusCode::kInvalidData, "template line 1, column 1: a tag does not end"},
      {"a\nb {% if x", StatusCode::kInvalidData, "template line 2, column 3: a tag does not end"},
      {"\n\n  {# x", StatusCode::kInvalidData, "line 3, column 3: a comment does not end"},
      {"{% raw %}{{ x }}", StatusCode::kInvalidData, "a raw block does not end"},
      {"{{ 'x }}", StatusCode::kInvalidData, "line 1, column 4: a string does not end"},
      {"{{ '\\x4' }}", StatusCode::kInvalidData, "\\x that lacks its 2 digits"},
      {"{{ '\\ud800' }}", StatusCode::kInvalidData, "U+D800, which is no character"},
      {"{{ '\\N{DASH}' }}", StatusCode::kUnsupported, "write the character itself"},
      {"{{ 1 $ 2 }}", StatusCode::kInvalidData, "line 1, column 6: the character '$'"},
      {"{{ (1] }}", StatusCode::kInvalidData, "']' closes nothing"},
      {"{{ 007 }}", StatusCode::kInvalidData, "a number that begins with 0"},
      {"{{ 999999999999999999999999999999999999999999 }}", StatusCode::kUnsupported, "128 bits"},
      {"{{ }}", StatusCode::kInvalidData, "expected an expression, not '}}'"},
      {"{{ 1 2 }}", StatusCode::kInvalidData, "line 1, column 6: expected '}}', not '2'"},
      {"{{ a. }}", StatusCode::kInvalidData, "the name or number of an attribute"},
      {"{{ a[] }}", StatusCode::kInvalidData, "expected an index"},
      {"{{ f(a=1, 2) }}", StatusCode::kInvalidData, "an argument without a name after"},
      {"{{ a is odd is even }}", StatusCode::kInvalidData, "two tests in a row"},
      {"{{ {'a' 1} }}", StatusCode::kInvalidData, "expected ':', not '1'"},
      {"{% %}", StatusCode::kInvalidData, "expected a name, not '%}'"},
      {"{% if x %}a", StatusCode::kInvalidData, "a tag 'endif', not the end of the template"},
      {"{% for x in y %}{% endif %}", StatusCode::kInvalidData, "'endif' without its beginning"},
      {"{% for x y %}", StatusCode::kInvalidData, "expected 'in', not 'y'"},
      {"{% else %}", StatusCode::kInvalidData, "'else' without its beginning"},
      {"{% set none = 1 %}", StatusCode::kInvalidData, "'none' cannot be assigned to"},
      {"{% set 'a' = 1 %}", StatusCode::kInvalidData, "a name to assign to, not the string 'a'"},
      {"{% macro m(a=1, b) %}", StatusCode::kInvalidData, "a parameter without a default"},
      {"{% call x %}{% endcall %}", StatusCode::kInvalidData, "a call block without a call"},
      {"{% break %}", StatusCode::kInvalidData, "break or continue outside of a loop"},
      {"{{ a | upper | frobnicate }}", StatusCode::kUnsupported,
       "line 1, column 16: there is no filter 'frobnicate'"},
      {"{{ a is frobnicated }}", StatusCode::kUnsupported, "there is no test 'frobnicated'"},
      {"x\n{% include 'y' %}", StatusCode::kUnsupported,
       "line 2, column 4: the tag 'include' is not supported"},
      {"{% do x %}", StatusCode::kUnsupported, "the tag 'do' is not supported"},
      {"{{ \xFF }}", StatusCode::kInvalidData, "not UTF-8"},
      {"{% nope\x01\n %}", StatusCode::kInvalidData, "the character '\\x01'"},
  };
  for (const Refused& wrong : cases) {
    const auto parsed = jinja::Template::parse(wrong.source);
    ASSERT_FALSE(parsed.ok()) << wrong.source;
    EXPECT_EQ(parsed.status().code(), wrong.code) << parsed.status().message();
    EXPECT_NE(parsed.status().message().find(wrong.message), std::string::npos)
        << wrong.source << "\n"
        << parsed.status().message();
  }
}

// What fails when it is rendered: where, and why.
TEST(Jinja, FailingTemplates) {
  const Refused cases[] = {
      {"\n{{ x.y }}", StatusCode::kInvalidArgument, "template line 2, column 5: 'x' is undefined"},
      {"{{ d.x.y }}", StatusCode::kInvalidArgument, "a value of type 'dict' has no 'x'"},
      {"{{ f() }}", StatusCode::kInvalidArgument, "'f' is undefined"},
      {"{{ d() }}", StatusCode::kInvalidArgument, "a value of type 'dict' cannot be called"},
      {"{{ 1 + 'a' }}", StatusCode::kInvalidArgument, "'+' does not apply to 'int' and 'str'"},
      {"{{ 1 < 'a' }}", StatusCode::kInvalidArgument, "'<' cannot compare 'int' with 'str'"},
      {"{{ 1 / 0 }}", StatusCode::kInvalidArgument, "line 1, column 6: division by zero"},
      {"{{ 'a'.split('') }}", StatusCode::kInvalidArgument, "an empty separator"},
      {"{{ 'a' | replace('b') }}", StatusCode::kInvalidArgument, "needs its argument 'new'"},
      {"{{ 'a'.upper(1) }}", StatusCode::kInvalidArgument, "upper() takes at most 0 arguments"},
      {"{{ 'a' | trim(x=1) }}", StatusCode::kInvalidArgument, "has no argument named 'x'"},
      {"{{ [1] | map('nope') | list }}", StatusCode::kUnsupported,
       "there is no filter named 'nope'"},
      {"{{ [1] | select('nope') | list }}", StatusCode::kUnsupported,
       "there is no test named 'nope'"},
      {"{% for x in 5 %}{% endfor %}", StatusCode::kInvalidArgument,
       "'int' cannot be gone through"},
      {"{% set a, b = [1] %}", StatusCode::kInvalidArgument, "1 values for 2 names"},
      {"{% set d.x = 1 %}", StatusCode::kInvalidArgument, "'d' is no namespace"},
      {"{{ {[]: 1} }}", StatusCode::kInvalidArgument, "'list' cannot be a key"},
      {"{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", StatusCode::kInvalidArgument,
       "the macro 'm' takes at most 1 arguments, not 2"},
      {"{% macro m() %}\n{{ 1 / 0 }}{% endmacro %}\n\n{{ m() }}", StatusCode::kInvalidArgument,
       "template line 2, column 6: division by zero"},
      {"{{ 2 ** 200 }}", StatusCode::kInvalidArgument, "an integer does not fit 128 bits"},
      {"{{ raise_exception('Roles must\nalternate') }}", StatusCode::kInvalidArgument,
       "the template refuses this: Roles must\\nalternate"},
      {"{{ d.x | tojson }}", StatusCode::kInvalidArgument, "tojson: a value of type 'dict' has no"},
  };
  for (const Refused& wrong : cases) {
    const auto text = render_jinja(wrong.source, {{"d", ordered_json::object()}});
    ASSERT_FALSE(text.ok()) << wrong.source;
    EXPECT_EQ(text.status().code(), wrong.code) << text.status().message();
    EXPECT_NE(text.status().message().find(wrong.message), std::string::npos)
        << wrong.source << "\n"
        << text.status().message();
  }
}

// Any prefix of the table's templates, and a byte of each changed, is refused or rendered.
TEST(Jinja, DamagedTemplates) {
  const auto rows = test::read_ordered_rows("tests/golden/jinja.jsonl");
  const ordered_json& variables = rows[0].at("variables");
  jinja::Limits limits;
  limits.steps = 20000;
  int refused = 0, rendered = 0;
  for (size_t i = 1; i < rows.size(); ++i) {
    const auto whole = rows[i].at("template").get<std::string>();
    for (size_t at = 0; at < whole.size(); at += 3) {
      std::string damaged = whole;
      damaged[at] = "{}%'\\-#\n(|[~\xFF"[(i + at) % 13];
      for (const std::string& source : {whole.substr(0, at), damaged}) {
        const auto text = render_jinja(source, variables, limits);
        ++(text.ok() ? rendered : refused);
        if (text.ok()) continue;
        EXPECT_NE(text.status().code(), StatusCode::kInternal) << source;
        EXPECT_EQ(text.status().message().find('\n'), std::string::npos) << source;
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(rendered, 1000);
}

// Values are passed on as they are: bytes that are no UTF-8, integers of 64 bits, order of keys.
TEST(Jinja, VariablesOfEveryKind) {
  const ordered_json variables = {{"bytes", "a\xFFz\xC3"},
                                  {"large", 18446744073709551615u},
                                  {"small", std::numeric_limits<int64_t>::min()},
                                  {"dict", {{"z", 1}, {"a", {1.0, nullptr}}}}};
  const auto text = render_jinja(
      "{{ bytes }}|{{ bytes | length }}|{{ bytes[1:2] }}|{{ bytes | upper }}|{{ large }}|{{ small "
      "}}|"
      "{{ dict }}|{{ dict | tojson }}",
      variables);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(*text,
            "a\xFFz\xC3|4|\xFF|A\xFFZ\xC3|18446744073709551615|-9223372036854775808|"
            "{'z': 1, 'a': [1.0, None]}|{\"z\": 1, \"a\": [1.0, null]}");
}

TEST(Jinja, WhatATemplateChangesIsACopy) {
  const ordered_json variables = {{"xs", {1, 2}}};
  const auto parsed = jinja::Template::parse("{{ xs.append(3) }}{{ xs }}");
  ASSERT_TRUE(parsed.ok());
  const jinja::Variable list[] = {{"xs", &variables["xs"]}};
  for (int i = 0; i < 2; ++i) {
    const auto text = parsed->render(list);
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(*text, "None[1, 2, 3]");
  }
  EXPECT_EQ(variables["xs"].size(), 2u);
}

TEST(Jinja, Mentions) {
  const auto parsed = jinja::Template::parse("{% if tools %}{{ x.enable }}{% endif %}");
  ASSERT_TRUE(parsed.ok());
  EXPECT_TRUE(parsed->mentions("tools"));
  EXPECT_TRUE(parsed->mentions("x"));
  EXPECT_FALSE(parsed->mentions("enable"));
}

TEST(Jinja, TheClockIsTheSystemsUnlessGiven) {
  const auto parsed = jinja::Template::parse("{{ strftime_now('%Y') }}");
  ASSERT_TRUE(parsed.ok());
  const auto text = parsed->render({});
  ASSERT_TRUE(text.ok());
  EXPECT_GE(std::stoi(*text), 2025);
}

TEST(Jinja, ThreadsShareATemplate) {
  const auto parsed = jinja::Template::parse(
      "{% set ns = namespace(n=0) %}{% for x in range(200) %}{% set ns.n = ns.n + x %}"
      "{{ 'é' ~ x | string | upper }}{% endfor %}{{ ns.n }}");
  ASSERT_TRUE(parsed.ok());
  const std::string expected = *parsed->render({});
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) same[t] += *parsed->render({}) == expected ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 20));
}

}  // namespace aerie::jinja_test
