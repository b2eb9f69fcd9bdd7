#include "report/prompt_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace aerie::measure::prompt_set_test {

using testing::ElementsAre;
using testing::HasSubstr;

// A file that goes when the test ends.
struct Lines {
  std::string path;
  Lines(const std::string& name, const std::string& text) : path(testing::TempDir() + name) {
    std::ofstream(path, std::ios::binary) << text;
  }
  ~Lines() { std::remove(path.c_str()); }
};

std::vector<Prompt> read(const std::string& text, const PromptSelection& selection = {}) {
  const Lines file("prompts.jsonl", text);
  auto prompts = read_prompts({file.path}, selection);
  EXPECT_TRUE(prompts.ok()) << prompts.status().message();
  return prompts.ok() ? std::move(*prompts) : std::vector<Prompt>();
}

std::string refusal(const std::string& text) {
  const Lines file("prompts.jsonl", text);
  const auto prompts = read_prompts({file.path}, {});
  EXPECT_FALSE(prompts.ok());
  EXPECT_EQ(prompts.status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(prompts.status().message(), HasSubstr("'turns' (a list of texts) or"));
  return prompts.status().message();
}

std::vector<int> numbers(const std::vector<Prompt>& prompts) {
  std::vector<int> out;
  for (const Prompt& prompt : prompts) out.push_back(prompt.number);
  return out;
}

TEST(PromptSet, ReadsThePublishedForms) {
  const auto prompts = read(
      "{\"question_id\": 81, \"category\": \"writing\", \"turns\": [\"One\", \"Two\"]}\n"
      "\r\n"
      "{\"question_id\": 9, \"category\": \"math\", \"turns\": [\"Só\\n\"], \"reference\": [1]}\r\n"
      "{\"task_id\": \"HumanEval/0\", \"prompt\": \"def f():\\n\", \"test\": \"\"}");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_THAT(prompts[0].turns, ElementsAre("One", "Two"));
  EXPECT_TRUE(prompts[0].chat);
  EXPECT_EQ(prompts[0].task, kMultiTurn);
  EXPECT_THAT(prompts[0].name, HasSubstr("prompts.jsonl:1 (81)"));
  EXPECT_THAT(prompts[1].turns, ElementsAre("Só\n"));
  EXPECT_EQ(prompts[1].task, "math");  // one turn: not MT-bench's
  EXPECT_THAT(prompts[1].name, HasSubstr("prompts.jsonl:3 (9)"));
  EXPECT_THAT(prompts[2].turns, ElementsAre("def f():\n"));
  EXPECT_FALSE(prompts[2].chat);
  EXPECT_EQ(prompts[2].task, "prompts");  // the file's name
  EXPECT_THAT(prompts[2].name, HasSubstr("(HumanEval/0)"));
  EXPECT_THAT(numbers(prompts), ElementsAre(0, 1, 2));
}

TEST(PromptSet, ReadsQuestionsTextsAndMessages) {
  const auto prompts = read(
      "{\"question\": \"How many?\", \"answer\": \"2\"}\n"
      "{\"text\": \"Write a function.\", \"task_id\": 601}\n"
      "{\"prompt\": \"Hi\", \"messages\": [{\"role\": \"system\", \"content\": \"S\"}, "
      "{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"\"}, "
      "{\"role\": \"user\", \"content\": \"Why?\"}]}\n");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_THAT(prompts[0].turns, ElementsAre("How many?"));
  EXPECT_THAT(prompts[1].turns, ElementsAre("Write a function."));
  EXPECT_THAT(prompts[1].name, HasSubstr("prompts.jsonl:2 (601)"));
  EXPECT_THAT(prompts[2].turns, ElementsAre("Hi", "Why?"));
  EXPECT_EQ(prompts[2].system, "S");
  EXPECT_EQ(prompts[0].system, "");
  for (const Prompt& prompt : prompts) EXPECT_TRUE(prompt.chat);
}

TEST(PromptSet, ReadsShareGptsConversationsAndTurnsOfObjects) {
  const auto prompts = read(
      "{\"id\": \"x_0\", \"conversations\": [{\"from\": \"system\", \"value\": \"S\"}, "
      "{\"from\": \"human\", \"value\": \"Hi\"}, {\"from\": \"gpt\", \"value\": \"\"}, "
      "{\"from\": \"human\", \"value\": \"Why?\"}, {\"from\": \"bing\", \"value\": \"B\"}]}\n"
      "{\"conversations\": [{\"from\": \"gpt\", \"value\": \"A\"}, "
      "{\"role\": \"user\", \"content\": \"C\"}]}\n"
      "{\"turns\": [{\"role\": \"user\", \"content\": \"D\"}, "
      "{\"role\": \"assistant\", \"content\": \"E\"}, {\"from\": \"user\", \"value\": \"F\"}]}\n");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_THAT(prompts[0].turns, ElementsAre("Hi", "Why?"));
  EXPECT_EQ(prompts[0].system, "S");
  EXPECT_THAT(prompts[1].turns, ElementsAre("C"));
  EXPECT_THAT(prompts[2].turns, ElementsAre("D", "F"));
  for (const Prompt& prompt : prompts) EXPECT_TRUE(prompt.chat);
}

TEST(PromptSet, RangesLeaveLinesOut) {
  const Lines numbered("numbered.jsonl",
                       "{\"text\": \"a\", \"task_id\": 1}\n{\"text\": \"b\", \"task_id\": 2}\n"
                       "{\"text\": \"c\", \"task_id\": 3}\n{\"text\": \"d\", \"task_id\": 4}\n");
  const Lines others("others.jsonl", "{\"question\": \"e\"}\n");
  const auto chosen = [&](const std::vector<std::string>& texts, int limit = 0) {
    PromptSelection selection;
    selection.limit = limit;
    for (const std::string& text : texts) {
      const auto range = parse_prompt_range(text);
      EXPECT_TRUE(range.ok()) << range.status().message();
      if (range.ok()) selection.where.push_back(*range);
    }
    const auto prompts = read_prompts({numbered.path, others.path}, selection);
    EXPECT_TRUE(prompts.ok()) << prompts.status().message();
    if (!prompts.ok()) return std::vector<int>();
    EXPECT_EQ(prompts->back().file, 1);
    return numbers(*prompts);
  };
  EXPECT_THAT(chosen({"task_id=2..3"}), ElementsAre(1, 2, 4));
  EXPECT_THAT(chosen({"task_id=4"}), ElementsAre(3, 4));
  EXPECT_THAT(chosen({"task_id=3.."}), ElementsAre(2, 3, 4));
  EXPECT_THAT(chosen({"task_id=..1"}), ElementsAre(0, 4));
  EXPECT_THAT(chosen({"task_id=2..", "task_id=..3"}), ElementsAre(1, 2, 4));
  EXPECT_THAT(chosen({"task_id=-5..2"}), ElementsAre(0, 1, 4));
  EXPECT_THAT(chosen({"task_id=9..7"}), ElementsAre(4));
  EXPECT_THAT(chosen({"task_id=2.."}, 1), ElementsAre(1, 4));
  EXPECT_THAT(chosen({"other=1"}), ElementsAre(0, 1, 2, 3, 4));
  for (const char* text : {"", "task_id", "=1", "task_id=", "task_id=..", "task_id=a..b",
                           "task_id=1..2..3", "task_id=1.5", "task_id=1-2", "task_id= 1"}) {
    const auto range = parse_prompt_range(text);
    EXPECT_EQ(range.status().code(), StatusCode::kInvalidArgument) << text;
  }
  PromptSelection selection;
  selection.where = {*parse_prompt_range("task_id=1..")};
  const Lines texts("texts.jsonl", "{\"prompt\": \"a\", \"task_id\": \"HumanEval/0\"}\n");
  const auto wrong = read_prompts({texts.path}, selection);
  EXPECT_EQ(wrong.status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(wrong.status().message(), HasSubstr("'task_id' is no whole number"));
}

TEST(PromptSet, SelectsTheFirstAndEvenly) {
  std::string text;
  for (int i = 0; i < 10; ++i) {
    text += "{\"category\": \"" + std::string(i < 6 ? "a" : "b") + "\", \"prompt\": \"x\"}\n";
  }
  EXPECT_THAT(numbers(read(text, {3, 0})), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers(read(text, {0, 2})), ElementsAre(0, 3, 6, 8));
  EXPECT_THAT(numbers(read(text, {0, 5})), ElementsAre(0, 1, 2, 3, 4, 6, 7, 8, 9));
  EXPECT_THAT(numbers(read(text, {7, 3})), ElementsAre(0, 2, 4, 6));
  EXPECT_EQ(read(text, {100, 100}).size(), 10u);
}

TEST(PromptSet, NumbersGoOnThroughFiles) {
  const Lines one("one.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n");
  const Lines two("two.jsonl", "{\"prompt\": \"c\"}\n{\"prompt\": \"d\"}\n");
  const auto prompts = read_prompts({one.path, two.path}, {1, 0});
  ASSERT_TRUE(prompts.ok());
  EXPECT_THAT(numbers(*prompts), ElementsAre(0, 2));
  EXPECT_EQ((*prompts)[0].task, "one");
  EXPECT_EQ((*prompts)[1].task, "two");
}

TEST(PromptSet, NamesTheBrokenLine) {
  EXPECT_THAT(refusal("{\"prompt\": \"a\"}\n\n{\"prompt\": \n"), HasSubstr("prompts.jsonl:3: "));
  EXPECT_THAT(refusal("[1]"), HasSubstr("this is no object"));
  EXPECT_THAT(refusal("{}"), HasSubstr("there is none of 'turns'"));
  EXPECT_THAT(refusal("{\"turns\": [\"a\"], \"prompt\": \"a\"}"), HasSubstr("both"));
  EXPECT_THAT(refusal("{\"question\": \"a\", \"text\": \"a\"}"), HasSubstr("both"));
  EXPECT_THAT(refusal("{\"text\": []}"), HasSubstr("'text' holds"));
  const auto messages = [](const std::string& list) {
    return refusal("{\"messages\": " + list + "}");
  };
  const std::string user = "{\"role\": \"user\", \"content\": \"a\"}";
  EXPECT_THAT(messages("7"), HasSubstr("'messages' is not a list"));
  EXPECT_THAT(messages("[]"), HasSubstr("no message of the user"));
  EXPECT_THAT(messages("[7]"), HasSubstr("no object"));
  EXPECT_THAT(messages("[{\"role\": \"user\"}]"), HasSubstr("without 'role' or 'content'"));
  EXPECT_THAT(messages("[{\"role\": \"user\", \"content\": []}]"), HasSubstr("'content' holds"));
  EXPECT_THAT(messages("[" + user + ", {\"role\": \"system\", \"content\": \"a\"}]"),
              HasSubstr("not the first"));
  EXPECT_THAT(messages("[" + user + ", {\"role\": \"tool\", \"content\": \"a\"}]"),
              HasSubstr("other than"));
  EXPECT_THAT(refusal("{\"conversations\": [{\"from\": \"tool\", \"value\": \"a\"}]}"),
              HasSubstr("'conversations' has a role"));
  EXPECT_THAT(refusal("{\"conversations\": [{\"from\": \"human\", \"value\": \"\"}]}"),
              HasSubstr("'value' holds"));
  EXPECT_THAT(refusal("{\"turns\": [{\"role\": \"user\", \"content\": \"a\"}, \"b\"]}"),
              HasSubstr("'turns' holds what is no object"));
  EXPECT_THAT(refusal("{\"turns\": []}"), HasSubstr("1 to 64 texts"));
  EXPECT_THAT(refusal("{\"turns\": \"a\"}"), HasSubstr("1 to 64 texts"));
  EXPECT_THAT(refusal("{\"turns\": [\"a\", 2]}"), HasSubstr("'turns' holds"));
  EXPECT_THAT(refusal("{\"turns\": [\"a\", \"\"]}"), HasSubstr("'turns' holds"));
  EXPECT_THAT(refusal("{\"prompt\": 7}"), HasSubstr("'prompt' holds"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"category\": []}"), HasSubstr("'category' holds"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"question_id\": 1.5}"), HasSubstr("'question_id' is"));
  EXPECT_THAT(refusal("{\"prompt\": \"a\", \"category\": \"" + std::string(201, 'c') + "\"}"),
              HasSubstr("longer than 200"));
  EXPECT_THAT(refusal("{\"prompt\": \"\xff\"}"), HasSubstr("prompts.jsonl:1"));
  // A line that --limit leaves out is checked, too.
  const Lines file("prompts.jsonl", "{\"prompt\": \"a\"}\nx\n");
  EXPECT_FALSE(read_prompts({file.path}, {1, 0}).ok());
}

TEST(PromptSet, RefusesWhatIsNoSetOfPrompts) {
  EXPECT_EQ(read_prompts({"/nowhere/x.jsonl"}, {}).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_prompts({testing::TempDir()}, {}).status().code(), StatusCode::kNotFound);
  EXPECT_THAT(read_prompts({}, {}).status().message(), HasSubstr("--dataset"));
  const Lines empty("prompts.jsonl", "\n \n");
  EXPECT_THAT(read_prompts({empty.path}, {}).status().message(), HasSubstr("no prompts"));
  const Lines file("prompts.jsonl", "{\"prompt\": \"a\"}\n");
  EXPECT_THAT(read_prompts({file.path}, {-1, 0}).status().message(), HasSubstr("--limit -1"));
  EXPECT_THAT(read_prompts({file.path}, {0, -2}).status().message(), HasSubstr("--sample -2"));
}

// The file that comes with the project.
TEST(PromptSet, QuotingAndEditing) {
  const auto prompts = read_prompts({"bench/prompts/quoting.jsonl"}, {});
  ASSERT_TRUE(prompts.ok()) << prompts.status().message();
  EXPECT_GE(prompts->size(), 24u);
  std::vector<std::string> tasks;
  for (const Prompt& prompt : *prompts) {
    EXPECT_TRUE(prompt.chat);
    EXPECT_EQ(prompt.turns.size(), 1u);
    EXPECT_GT(prompt.turns[0].size(), 500u) << prompt.name;
    if (tasks.empty() || tasks.back() != prompt.task) tasks.push_back(prompt.task);
  }
  EXPECT_THAT(tasks, ElementsAre("repeat", "extract", "refactor"));
}

}  // namespace aerie::measure::prompt_set_test
