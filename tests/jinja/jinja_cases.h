// What the tests of Jinja templates share.
#pragma once

#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "jinja/template.h"
#include "tests/testing/sanitized.h"

namespace aerie::test {

using nlohmann::ordered_json;

// One JSON value for each line, members in their order. Fails the test if there are none.
inline std::vector<ordered_json> read_ordered_rows(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<ordered_json> rows;
  for (std::string line; std::getline(file, line);) rows.push_back(ordered_json::parse(line));
  EXPECT_FALSE(rows.empty()) << path;
  return rows;
}

#ifdef NDEBUG
constexpr double kJinjaSlowdown = test::kSanitized ? 30 : 1;
#else
constexpr double kJinjaSlowdown = 30;
#endif

// Of the processor, so that a busy machine does not fail the tests.
inline double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

// 2026-01-02 03:04:05, a Friday: the time at which the goldens were made.
inline std::tm golden_time() {
  std::tm time{};
  time.tm_year = 126;
  time.tm_mon = 0;
  time.tm_mday = 2;
  time.tm_hour = 3;
  time.tm_min = 4;
  time.tm_sec = 5;
  time.tm_wday = 5;
  time.tm_yday = 1;
  return time;
}

inline Expected<std::string> render_jinja(std::string_view source,
                                          const ordered_json& variables = ordered_json::object(),
                                          const jinja::Limits& limits = {}) {
  AERIE_ASSIGN_OR_RETURN(const jinja::Template parsed, jinja::Template::parse(source, limits));
  std::vector<jinja::Variable> list;
  for (const auto& [name, value] : variables.get_ref<const ordered_json::object_t&>()) {
    list.push_back({name, &value});
  }
  return parsed.render(list, golden_time());
}

}  // namespace aerie::test
