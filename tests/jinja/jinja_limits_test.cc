// Templates that ask for too much are refused, in bounded time and memory.
#include "tests/jinja/jinja_cases.h"

namespace aerie::jinja_limits_test {

using jinja::Limits;
using test::ordered_json;
using test::render_jinja;

std::string repeated(std::string_view part, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += part;
  return text;
}

// A tenth of the limits, so that the tests are quick where memory is checked.
const Limits kSmall = [] {
  Limits limits;
  limits.steps /= 10;
  limits.memory_bytes /= 8;
  return limits;
}();

void expect_exhausted(const std::string& source, const char* limit, const Limits& limits = {},
                      const ordered_json& variables = ordered_json::object()) {
  const auto text = render_jinja(source, variables, limits);
  ASSERT_FALSE(text.ok()) << source.substr(0, 200);
  EXPECT_EQ(text.status().code(), StatusCode::kResourceExhausted) << source.substr(0, 200);
  EXPECT_NE(text.status().message().find(limit), std::string::npos) << source.substr(0, 200) << "\n"
                                                                    << text.status().message();
}

TEST(JinjaLimits, Source) {
  EXPECT_TRUE(render_jinja(std::string(256 << 10, 'x')).ok());
  expect_exhausted(std::string((256 << 10) + 1, 'x'), "262144 are the most");
}

TEST(JinjaLimits, NestedTemplates) {
  const std::pair<std::string, std::string> nests[] = {
      {"(", ")"},         {"[", "]"},           {"{1:", "}"}, {"-", ""},
      {"not ", ""},       {"1 if 1 else ", ""}, {"f(", ")"},  {"x[", "]"},
      {"x is odd(", ")"}, {"x|join(", ")"},     {"- -", ""},  {"(1,", ")"},
  };
  for (const auto& nest : nests) {
    const auto nested = [&nest](size_t levels) {
      return "{{ " + repeated(nest.first, levels) + "1" + repeated(nest.second, levels) + " }}";
    };
    EXPECT_TRUE(jinja::Template::parse(nested(40)).ok()) << nest.first;
    expect_exhausted(nested(20000), "nested deeper than 100 levels");
  }
  const std::pair<std::string, std::string> blocks[] = {
      {"{% if 1 %}", "{% endif %}"},
      {"{% for x in [1] %}", "{% endfor %}"},
      {"{% macro m() %}", "{% endmacro %}"},
      {"{% set x %}", "{% endset %}"},
      {"{% filter upper %}", "{% endfilter %}"},
      {"{% call f() %}", "{% endcall %}"},
      {"{% with %}", "{% endwith %}"},
      {"{% generation %}", "{% endgeneration %}"},
  };
  for (const auto& [open, close] : blocks) {
    const std::string fine = repeated(open, 90) + repeated(close, 90);
    EXPECT_TRUE(jinja::Template::parse(fine).ok()) << open;
    expect_exhausted(repeated(open, 5000) + repeated(close, 5000), "nested deeper than");
  }
  expect_exhausted("{% set " + repeated("(", 20000) + "x" + repeated(")", 20000) + " = 1 %}",
                   "nested deeper than");
}

// A chain is a tree that is as high as the chain is long.
TEST(JinjaLimits, Chains) {
  const std::string links[] = {" + 1", " ~ 1", " * 1",   " and 1", " or 1", ".x",
                               "[0]",  "()",   " | abs", " ** 1",  "[1:]"};
  for (const std::string& link : links) {
    EXPECT_TRUE(jinja::Template::parse("{{ x" + repeated(link, 150) + " }}").ok()) << link;
    expect_exhausted("{{ x" + repeated(link, 20000) + " }}", "nested deeper than");
  }
  // These are no trees.
  EXPECT_TRUE(render_jinja("{{ 1" + repeated(" < 2 > 1", 5000) + " }}").ok());
  EXPECT_TRUE(render_jinja("{{ [1" + repeated(", 1", 50000) + "] }}").ok());
  EXPECT_TRUE(render_jinja("{{ " + repeated("'a' ", 50000) + " }}").ok());
  EXPECT_TRUE(render_jinja("{% if 0 %}" + repeated("{% elif 0 %}", 10000) + "{% endif %}").ok());
}

TEST(JinjaLimits, Recursion) {
  expect_exhausted("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels of evaluation");
  expect_exhausted(
      "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
      "levels of evaluation");
  expect_exhausted("{% macro m(x=m()) %}{% endmacro %}{{ m() }}", "levels of evaluation");
  expect_exhausted("{% macro m() %}{% call m() %}{% endcall %}{{ caller }}{% endmacro %}{{ m() }}",
                   "levels of evaluation");
  expect_exhausted("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
                   "levels of evaluation");
  expect_exhausted(
      "{% set ns = namespace() %}{% for x in [1] recursive %}{% set ns.l = loop %}"
      "{% endfor %}{% macro m() %}{{ ns.l([1]) }}{{ m() }}{% endmacro %}{{ m() }}",
      "levels of evaluation");
  const auto fine = render_jinja(
      "{% macro m(n) %}{% if n > 0 %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}");
  EXPECT_TRUE(fine.ok()) << fine.status().message();
}

// Loop over a range in a range, and so on.
TEST(JinjaLimits, Steps) {
  const std::string range = "{% set r = range(100000) %}";
  Limits most;
  if (test::kSanitized) most.steps /= 20;
  expect_exhausted(range + "{% for a in r %}{% for b in r %}{% endfor %}{% endfor %}", "steps",
                   most);
  expect_exhausted("{% set l = [1] %}{% for x in l %}{% set _ = l.append(1) %}{% endfor %}",
                   "more than", most);
  Limits limits;
  limits.steps = 100;
  EXPECT_TRUE(
      render_jinja("{% for a in range(10) %}{{ a }}{% endfor %}", ordered_json::object(), limits)
          .ok());
  expect_exhausted("{% for a in range(100) %}{{ a }}{% endfor %}", "more than 100 steps", limits);
}

TEST(JinjaLimits, Memory) {
  const std::string loop = "{% for i in range(1000) %}";
  const std::string sources[] = {
      "{{ 'x' * 10**9 }}",
      "{{ 'x' * 10**30 }}",
      "{{ [1] * 10**9 }}",
      "{{ ('x' * 10**6).replace('', 'y' * 10**6) | length }}",
      "{{ ('x' * 10**6) | replace('x', 'y' * 10**6) | length }}",
      "{{ (['x' * 10**6] * 10**4) | join | length }}",
      "{{ ('x' * 10**6).join(['a'] * 10**4) | length }}",
      "{{ 'x'.center(10**12) | length }}",
      "{{ 'x'.ljust(10**12) | length }}",
      "{{ 'x'.zfill(10**12) | length }}",
      "{{ 'x' | center(10**12) | length }}",
      "{{ ('\n' * 10**5) | indent(10**12) | length }}",
      "{{ ('a\n' * 10**5) | indent('x' * 10**5) | length }}",
      "{{ '%999999999999d' % 1 }}",
      "{{ '%*d' % (10**12, 1) }}",
      "{{ '{:999999999999}'.format(1) }}",
      "{{ ('{0}' * 10**5).format('x' * 10**5) | length }}",
      "{{ [1] | batch(10**12, 0) | list | length }}",
      "{{ [1] | slice(10**12) | list | length }}",
      "{{ [1] | tojson(indent=10**12) }}",
      "{{ range(100000) | list | tojson(indent=10**6) | length }}",
      "{% set ns = namespace(s='x') %}" + loop + "{% set ns.s = ns.s + ns.s %}{% endfor %}",
      "{% set ns = namespace(s='x') %}" + loop + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "{% set ns = namespace(s='x') %}" + loop + "{% set ns.s = ns.s * 2 %}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}" + loop + "{% set ns.l = ns.l + ns.l %}{% endfor %}",
      "{% set l = [1] %}" + loop + "{% set _ = l.extend(l) %}{% endfor %}",
      "{% set ns = namespace(x=1) %}" + loop +
          "{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x | string | length }}",
      "{% set x %}" + loop + "{{ 'x' * 10**6 }}{% endfor %}{% endset %}",
      "{% macro m(n) %}{{ 'x' * 10**7 }}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(50) "
      "| length }}",
      loop + "{% for c in 'x' * 10**5 %}{% endfor %}{% endfor %}",
      loop + "{{ range(100000) | list | length }}{% endfor %}",
      loop + "{{ ('x ' * 10**5).split() | length }}{% endfor %}",
      loop + "{{ range(100000) | map('string') | list | length }}{% endfor %}",
  };
  for (const std::string& source : sources) {
    const double start = test::cpu_seconds();
    expect_exhausted(source, "more than", kSmall);
    EXPECT_LT(test::cpu_seconds() - start, 1.0 * test::kJinjaSlowdown) << source;
  }
  expect_exhausted("{{ range(10**9) }}", "100000 are the most");
  expect_exhausted("{{ range(-(10**18), 10**18, 3) }}", "100000 are the most");
  expect_exhausted("{{ '%.1000000f' % 1.5 }}", "decimal places");
}

TEST(JinjaLimits, Output) {
  Limits limits;
  limits.output_bytes = 10;
  EXPECT_TRUE(render_jinja("0123456789", ordered_json::object(), limits).ok());
  expect_exhausted("0123456789x", "more than 10 bytes of output", limits);
  expect_exhausted("{% for x in range(100) %}{{ x }}{% endfor %}", "10 bytes of output", limits);
  expect_exhausted("{% set x = 'x' * 10**6 %}{% for i in range(10**5) %}{{ x }}{% endfor %}",
                   "bytes of output");
}

TEST(JinjaLimits, NestedValues) {
  const std::string cycle = "{% set l = [] %}{% set _ = l.append(l) %}";
  const std::string deep =
      "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}";
  const std::string uses[] = {"{{ l }}", "{{ l | tojson }}", "{{ l | string }}", "{{ '%s' % l }}",
                              "{{ [l] | join }}"};
  for (const std::string& use : uses) expect_exhausted(cycle + use, "levels of lists");
  expect_exhausted(cycle + "{% set m = [] %}{% set _ = m.append(m) %}{{ l == m }}",
                   "levels of lists");
  expect_exhausted(cycle + "{% set m = [] %}{% set _ = m.append(m) %}{{ l < m }}",
                   "levels of lists");
  expect_exhausted(deep + "{{ ns.x }}", "levels of lists");
  expect_exhausted(deep + "{{ ns.x | tojson }}", "levels of lists");
  EXPECT_EQ(*render_jinja(cycle + "{{ l | length }}{{ l[0][0][0] | length }}{{ l == l }}"),
            "11True");
  EXPECT_EQ(*render_jinja("{% set d = {} %}{% set _ = d.update(a=d) %}{{ d.a.a.a | length }}"),
            "1");

  ordered_json value = 1;
  for (int i = 0; i < 5000; ++i) value = ordered_json::array({std::move(value)});
  expect_exhausted("{{ x }}", "the variable x: the template needs more than 100 levels", {},
                   {{"x", std::move(value)}});
}

// Work that is quadratic, or worse, in the size of a value.
TEST(JinjaLimits, HostileWork) {
  const std::string long_text = "{% set s = '1' * 10**7 %}{% set d = {s: 1} %}";
  const std::string rounds = "{% for i in range(100000) %}";
  std::string many_names, many_parameters;
  for (int i = 0; i < 10000; ++i) {
    many_names.append("{%set v").append(std::to_string(i)).append("=1%}");
    many_parameters.append("p").append(std::to_string(i)).append(",");
  }
  const std::string sources[] = {
      "{{ ('a' * 10**6 ~ 'b') in ('a' * 10**7) }}",
      "{{ ('a' * 10**7).count('a' * 10**6 ~ 'b') }}",
      "{{ ('a' * 10**7).rsplit('b' ~ 'a' * 10**6) | length }}",
      "{{ ('a' * 10**6).strip('b' * 10**6 ~ 'a') }}",
      "{{ ('é' * 10**6)[::-1] | length }}",
      "{% for i in range(10**5) %}{{ ('é' * 10**5)[5] }}{% endfor %}",
      "{% for i in range(10**5) %}{{ 'x' in 'y' * 10**5 }}{% endfor %}",
      "{% set d = {} %}{% for i in range(10**5) %}{% set _ = d.update({i: i}) %}{% endfor %}",
      "{% set l = range(10**5) | list %}{% for i in range(10**5) %}{{ -1 in l }}{% endfor %}",
      "{% set l = range(10**5) | list %}{% for i in range(10**5) %}{{ l.pop(0) }}{% endfor %}",
      "{% set l = [] %}{% for i in range(10**5) %}{% set _ = l.insert(0, 1) %}{% endfor %}",
      "{% for i in range(10**5) %}{{ range(10**4) | sum }}{% endfor %}",
      "{{ range(10**5) | map('string') | sort | unique | list | length }}",
      "{{ range(10**5) | groupby('x') | length }}",
      "{{ ([[1] * 1000] * 1000) | sort | length }}",
      "{% set ns = namespace(x=1) %}{% for i in range(90) %}{% set ns.x = [ns.x, ns.x] %}{% endfor "
      "%}"
      "{% set nt = namespace(x=1) %}{% for i in range(90) %}{% set nt.x = [nt.x, nt.x] %}{% endfor "
      "%}"
      "{{ ns.x == nt.x }}",
      "{{ [1] | map(" + repeated("'map', ", 10000) + "'abs') | list }}",
      // What looks like one step each, of a long text.
      long_text + rounds + "{{ s in d }}{% endfor %}",
      long_text + rounds + "{{ s[1:] | first }}{% endfor %}",
      long_text + rounds + "{{ s.removeprefix(s) }}{{ s.endswith(s) }}{% endfor %}",
      long_text + rounds + "{{ s | int }}{{ s | float }}{% endfor %}",
      long_text + rounds + "{{ ('é' ~ s) | length }}{% endfor %}",
      long_text + rounds + "{{ s == s }}{{ s < s }}{{ s is upper }}{{ s.isdigit() }}{% endfor %}",
      long_text + "{% set u = 'é' ~ s %}" + rounds +
          "{{ u | length }}{{ u.find('x') }}{% endfor %}",
      // Many variables, many arguments.
      many_names + rounds + "{{ v9999 }}{% endfor %}",
      "{% macro m(" + many_parameters +
          "x) %}{% endmacro %}{% set d = {} %}{% for i in range(10000) %}"
          "{% set _ = d.update({'k' ~ i: i}) %}{% endfor %}" +
          rounds + "{{ m(**d) }}{% endfor %}",
  };
  for (const std::string& source : sources) {
    const double start = test::cpu_seconds();
    const auto text = render_jinja(source, ordered_json::object(), kSmall);
    EXPECT_LT(test::cpu_seconds() - start, 1.0 * test::kJinjaSlowdown) << source.substr(0, 200);
  }
}

}  // namespace aerie::jinja_limits_test
