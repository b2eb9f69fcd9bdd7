// Which records an audit reads: files and folders, times, samples, and lines that are not finished.

#include "measure/audit/audit_records.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

namespace aerie::measure::audit_records_test {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Known by its seed.
std::string line_of(uint64_t seed, int64_t time = 0) {
  Record record;
  record.engine.context = 64;
  record.engine.threads = 1;
  record.prompt = {1};
  record.tokens = {2};
  record.sampling.seed = seed;
  record.finish = FinishReason::kLength;
  record.time = time;
  return to_line(record);
}

class AuditRecords : public testing::Test {
 protected:
  AuditRecords() { fs::create_directory(folder_); }
  ~AuditRecords() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
    return path(name);
  }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  static std::vector<uint64_t> seeds(const std::vector<std::string>& paths,
                                     const RecordChoice& choice = {}) {
    const auto chosen = read_records(paths, choice);
    EXPECT_TRUE(chosen.ok()) << chosen.status().message();
    std::vector<uint64_t> out;
    if (!chosen.ok()) return out;
    for (const AuditRecord& one : chosen->records) out.push_back(one.record.sampling.seed);
    return out;
  }
  static Status refusal(const std::vector<std::string>& paths, const RecordChoice& choice = {}) {
    const auto chosen = read_records(paths, choice);
    EXPECT_FALSE(chosen.ok());
    return chosen.status();
  }

  const std::string folder_ = fmt::format("{}aerie_{}_audited", testing::TempDir(), getpid());
};

TEST_F(AuditRecords, OfFiles) {
  const std::string file = write("runs", line_of(1) + "\n" + line_of(2) + "\n\n \r\n" + line_of(3));
  const auto chosen = read_records({file, file}, {});
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  ASSERT_EQ(chosen->records.size(), 6u);
  EXPECT_EQ(chosen->records[2].where, file + ":5");
  EXPECT_EQ(to_line(chosen->records[4].record), line_of(2));
  EXPECT_THAT(seeds({file, file}, {.limit = 1}), ElementsAre(1, 1));
  EXPECT_THAT(seeds({write("empty", "\n")}), IsEmpty());
  // Lines that are left out are checked, too.
  write("runs", line_of(1) + "\n" + line_of(2) + "\n{\"aerie_record\":1}\n");
  EXPECT_THAT(refusal({file}, {.limit = 1}).message(), HasSubstr(file + ":3"));
  EXPECT_EQ(refusal({path("none")}).code(), StatusCode::kNotFound);
  EXPECT_EQ(refusal({"/dev/null"}).code(), StatusCode::kNotFound);
}

TEST_F(AuditRecords, OfAFolderInOrderOfNames) {
  write("replies-2026-11-24-002.jsonl", line_of(2) + "\n");
  write("replies-2026-11-24-001.jsonl", line_of(1) + "\n");
  write("replies-2026-11-25-001.jsonl", line_of(3) + "\n" + line_of(4) + "\n");
  write("replies-2026-11-25-001.jsonl.gz", "no record");
  write("notes.txt", "no record");
  EXPECT_THAT(seeds({folder_}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(seeds({folder_}, {.limit = 1}), ElementsAre(1, 2, 3));
  fs::create_directory(path("x.jsonl"));
  EXPECT_EQ(refusal({folder_}).code(), StatusCode::kNotFound);
}

TEST_F(AuditRecords, SinceATime) {
  const std::string file = write(
      "runs", line_of(1, 99) + "\n" + line_of(2, 100) + "\n" + line_of(3) + "\n" + line_of(4, 101));
  EXPECT_THAT(seeds({file}, {.since = 100}), ElementsAre(2, 4)) << "of the third it is not known";
  EXPECT_THAT(seeds({file}, {.since = 100, .limit = 1}), ElementsAre(2));
  EXPECT_THAT(seeds({file}, {.since = 102}), IsEmpty());
}

TEST_F(AuditRecords, ASampleIsOfAllAlike) {
  std::string text;
  for (uint64_t i = 0; i < 20; ++i) text += line_of(i, i < 10 ? 1 : 2) + "\n";
  write("a.jsonl", text.substr(0, text.find("\n") + 1));
  write("b.jsonl", text.substr(text.find("\n") + 1));
  std::array<int, 20> drawn = {};
  constexpr int kDraws = 400;
  for (int i = 0; i < kDraws; ++i) {
    const auto sample = seeds({folder_}, {.sample = 5, .seed = static_cast<uint64_t>(i)});
    ASSERT_EQ(sample.size(), 5u);
    EXPECT_TRUE(std::ranges::is_sorted(sample));
    for (const uint64_t seed : sample) ++drawn[seed];
  }
  // 100 are expected of each, with a deviation of 9.
  for (const int count : drawn) {
    EXPECT_GT(count, 55);
    EXPECT_LT(count, 145);
  }
  EXPECT_EQ(seeds({folder_}, {.sample = 30}).size(), 20u);
  for (const uint64_t seed : seeds({folder_}, {.since = 2, .sample = 8})) EXPECT_GE(seed, 10u);
}

TEST_F(AuditRecords, WhatWasCutOffInAFolderIsLeftOut) {
  const std::string half = line_of(9).substr(0, 40);
  const std::string cut = write("a.jsonl", line_of(1) + "\n" + half);
  write("b.jsonl", line_of(2) + "\n" + line_of(3));
  const auto chosen = read_records({folder_}, {});
  ASSERT_TRUE(chosen.ok()) << chosen.status().message();
  EXPECT_THAT(chosen->unfinished, ElementsAre(cut + ":2"));
  EXPECT_THAT(seeds({folder_}), ElementsAre(1, 2, 3)) << "a line that only lacks its end is one";
  EXPECT_THAT(refusal({cut}).message(), HasSubstr(cut + ":2")) << "by its own name";
  write("a.jsonl", half + "\n" + line_of(1) + "\n");
  EXPECT_THAT(refusal({folder_}).message(), HasSubstr(cut + ":1"));
}

TEST_F(AuditRecords, LongLinesAndManyPieces) {
  std::string text;
  std::vector<uint64_t> expected;
  for (uint64_t i = 0; i < 40; ++i) {
    std::string line = line_of(i);
    // Lines of all lengths around the reader's pieces.
    line.insert(1, std::string((i * 77777) % 3000000, ' '));
    text += line + "\n";
    expected.push_back(i);
  }
  EXPECT_EQ(seeds({write("runs", text)}), expected);
}

}  // namespace aerie::measure::audit_records_test
