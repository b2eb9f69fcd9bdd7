// What the target answers: the same as the engine, whatever else is answered beside it.

#include "train/data/answer.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <set>

#include "engine/engine.h"
#include "tests/train/data/data_folder.h"
#include "train/data/dataset.h"

namespace aerie::train::answer_test {

using test::generate;
using test::options_for;
using testing::HasSubstr;
using testing::StartsWith;

std::unique_ptr<Engine> engine_of(const std::string& model, int context) {
  EngineOptions options;
  options.model = model;
  options.context = context;
  options.threads = 1;
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

// [begin, end) of the replies.
std::vector<std::pair<size_t, size_t>> replies_of(const Sample& sample) {
  std::vector<std::pair<size_t, size_t>> out;
  for (size_t t = 0; t < sample.mask.size(); ++t) {
    if (sample.mask[t] == 0) continue;
    if (t == 0 || sample.mask[t - 1] == 0) out.emplace_back(t, t);
    out.back().second = t + 1;
  }
  return out;
}

std::string text_of(const Engine& engine, std::span<const int32_t> tokens) {
  std::string text;
  for (const int32_t token : tokens) text += engine.parts().tokenizer().piece(token);
  return text;
}

class AnswerTest : public testing::Test {
 protected:
  Dataset read(const std::string& folder) {
    auto dataset = read_dataset(folder);
    EXPECT_TRUE(dataset.ok()) << dataset.status().message();
    return dataset.ok() ? std::move(*dataset) : Dataset();
  }

  test::Scratch scratch_;
  std::string model_ = write_target(scratch_);
  GenerateOptions options_ =
      options_for(scratch_, model_, {write_prompts(scratch_, "prompts.jsonl", 24)});
};

// Each reply is what a lone request with the same prompt tokens and seed gets.
TEST_F(AnswerTest, RepliesAreTheEngines) {
  options_.samples = 2;
  EXPECT_EQ(generate(options_).counts.samples, 48);
  const Dataset dataset = read(options_.out);
  const auto engine = engine_of(model_, 256);
  ASSERT_NE(engine, nullptr);
  std::set<FinishReason> finishes;
  for (const Sample& sample : dataset.samples) {
    Request request;
    request.sampling.temperature = (sample.prompt + sample.index) % 2 == 0 ? 0.0 : 1.0;
    request.sampling.seed = seed_of(options_.settings, sample.prompt);
    request.sampling.choice = static_cast<uint32_t>(sample.index);
    request.max_tokens = 24;
    const auto replies = replies_of(sample);
    // Chats and messages have two turns.
    EXPECT_EQ(replies.size(), sample.prompt % 4 == 0 || sample.prompt % 4 == 3 ? 2u : 1u);
    FinishReason finish = FinishReason::kNone;
    for (const auto& [begin, end] : replies) {
      const auto at = sample.tokens.begin();
      request.prompt.assign(at, at + static_cast<int64_t>(begin));
      const auto generation = engine->generate(request, nullptr);
      ASSERT_TRUE(generation.ok()) << generation.status().message();
      EXPECT_EQ(generation->tokens,
                std::vector(at + static_cast<int64_t>(begin), at + static_cast<int64_t>(end)))
          << sample.id;
      finish = generation->finish;
    }
    EXPECT_EQ(sample.finish, finish);
    EXPECT_EQ(sample.mask.back(), 1);
    finishes.insert(finish);
  }
  EXPECT_EQ(finishes.size(), 2u) << "no reply ended by itself, or all did";
}

// What is not generated is what the template writes around the turns.
TEST_F(AnswerTest, MaskLeavesOutTheTemplate) {
  options_.settings.temperatures = {1.0};
  options_.samples = 4;
  generate(options_);
  const auto engine = engine_of(model_, 256);
  ASSERT_NE(engine, nullptr);
  std::set<std::string> between;
  for (const Sample& sample : read(options_.out).samples) {
    if (sample.prompt != 0) continue;
    const auto replies = replies_of(sample);
    ASSERT_EQ(replies.size(), 2u);
    const std::span tokens(sample.tokens);
    EXPECT_EQ(text_of(*engine, tokens.first(replies[0].first)),
              "<|im_start|>user\nSay 0<|im_end|>\n<|im_start|>assistant\n");
    const std::string text =
        text_of(*engine, tokens.subspan(replies[0].second, replies[1].first - replies[0].second));
    const bool ended = sample.tokens[replies[0].second - 1] == aerie::test::kTurnEnd;
    EXPECT_EQ(text, std::string(ended ? "" : "<|im_end|>") +
                        "\n<|im_start|>user\nAnd again<|im_end|>\n<|im_start|>assistant\n");
    between.insert(text);
  }
  EXPECT_FALSE(between.empty());
}

TEST_F(AnswerTest, EndOfTurnIsNotWrittenTwice) {
  const auto engine = engine_of(model_, 256);
  ASSERT_NE(engine, nullptr);
  ThreadPool& pool = aerie::test::pool_of(1);
  const auto source = open_model_source(model_, std::nullopt, pool);
  ASSERT_TRUE(source.ok());
  const auto format = ConversationFormat::make(*source, true);
  ASSERT_TRUE(format.ok());
  Prompt prompt;
  prompt.chat = true;
  // Nothing in the turns is taken for the reply.
  prompt.turns = {"(reply 0)", "then (reply 1)"};
  const auto next = [&](int32_t end) {
    const auto ids = format->next(prompt, {"(reply 2) "}, end);
    EXPECT_TRUE(ids.ok()) << ids.status().message();
    return ids.ok() ? text_of(*engine, *ids) : "";
  };
  const std::string rest = "\n<|im_start|>user\nthen (reply 1)<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(next(aerie::test::kTurnEnd), rest);
  EXPECT_EQ(next(-1), "<|im_end|>" + rest);
  EXPECT_EQ(next(aerie::test::kEndOfText), "<|im_end|>" + rest);
}

TEST_F(AnswerTest, BatchThreadsAndShardsMakeNoDifference) {
  options_.samples = 2;
  options_.target.sequences = 1;
  generate(options_);
  const auto alone = test::lines_in(options_.out);
  ASSERT_EQ(alone.size(), 48u);

  options_.out = scratch_.path("together");
  options_.target.sequences = 7;
  options_.target.threads = 2;
  for (int part = 1; part <= 3; ++part) {
    options_.shard = {part, 3};
    EXPECT_EQ(generate(options_).counts.samples, 16);
  }
  EXPECT_EQ(test::lines_in(options_.out), alone);
  for (const int part : {1, 2, 3}) {
    EXPECT_TRUE(
        std::filesystem::exists(options_.out + fmt::format("/answers-{}-of-3.jsonl", part)));
  }
}

TEST_F(AnswerTest, SamplesDifferBySeedPromptAndIndex) {
  options_.settings.temperatures = {1.0};
  options_.prompts = {scratch_.write("same.jsonl", "{\"prompt\": \"Go\"}\n{\"prompt\": \"Go\"}\n")};
  options_.samples = 3;
  generate(options_);
  options_.settings.seed = 6;
  options_.out = scratch_.path("other");
  generate(options_);
  std::set<std::vector<int32_t>> replies;
  for (const std::string& folder : {scratch_.path("out"), options_.out}) {
    for (const Sample& sample : read(folder).samples) replies.insert(sample.tokens);
  }
  EXPECT_EQ(replies.size(), 12u);
}

// A larger selection, more samples and more files add to what is there.
TEST_F(AnswerTest, GoesOnWithMore) {
  options_.selection.limit = 5;
  EXPECT_EQ(generate(options_).counts.samples, 5);
  const auto few = test::lines_in(options_.out);
  options_.selection.limit = 0;
  options_.samples = 2;
  options_.prompts.push_back(write_prompts(scratch_, "more.jsonl", 3));
  const GenerateResult more = generate(options_);
  EXPECT_EQ(more.there, 5);
  EXPECT_EQ(more.counts.samples, 2 * 27 - 5);
  const auto all = test::lines_in(options_.out);
  EXPECT_EQ(all.size(), 54u);
  for (const auto& [id, line] : few) EXPECT_EQ(all.at(id), line);
  EXPECT_THAT(all.at("26-1"), HasSubstr("\"more.jsonl:3 (2)\""));
}

TEST_F(AnswerTest, PlainTextsAndMessages) {
  const std::string text = "{\"prompt\": \"def f():\"}\n{\"turns\": [\"Hi\"]}\n";
  options_.prompts = {scratch_.write("a.jsonl", text), scratch_.write("b.jsonl", text)};
  options_.plain = {options_.prompts[1]};
  generate(options_);
  const auto engine = engine_of(model_, 256);
  ASSERT_NE(engine, nullptr);
  const Dataset dataset = read(options_.out);
  ASSERT_EQ(dataset.samples.size(), 4u);
  for (const Sample& sample : dataset.samples) {
    const std::string prompt =
        text_of(*engine, std::span(sample.tokens).first(replies_of(sample).at(0).first));
    if (sample.prompt == 2) {
      EXPECT_EQ(prompt, "def f():");
    } else {
      EXPECT_THAT(prompt, StartsWith("<|im_start|>user\n")) << sample.prompt;
    }
  }
  options_.out = scratch_.path("none");
  options_.use_template = false;
  generate(options_);
  EXPECT_EQ(read(options_.out).info.chat, "");
  for (const Sample& sample : read(options_.out).samples) {
    EXPECT_EQ(sample.tokens[0], sample.prompt % 2 == 0 ? 'd' : 'H');
  }
}

TEST_F(AnswerTest, ContextEndsRepliesAndLeavesOutTurns) {
  const std::string file =
      scratch_.write("long.jsonl", "{\"turns\": [\"a\", \"b\"]}\n{\"turns\": [\"" +
                                       std::string(100, 'x') + "\"]}\n");
  options_.prompts = {file};
  options_.settings.temperatures = {0.0};
  const auto engine = engine_of(model_, 256);
  ASSERT_NE(engine, nullptr);
  // "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" has 20 tokens.
  options_.target.context = 30;
  GenerateResult result = generate(options_);
  EXPECT_EQ(result.counts.samples, 1);
  EXPECT_EQ(result.counts.too_long, 1);
  EXPECT_EQ(result.counts.turns_left_out, 1);
  EXPECT_EQ(result.missing, 0);
  const Dataset dataset = read(options_.out);
  ASSERT_EQ(dataset.samples.size(), 1u);
  EXPECT_EQ(replies_of(dataset.samples[0]).size(), 1u);
  EXPECT_LE(dataset.samples[0].tokens.size(), 30u);
  if (dataset.samples[0].finish == FinishReason::kLength) {
    EXPECT_EQ(dataset.samples[0].tokens.size(), 30u);
  }
}

TEST_F(AnswerTest, StopsWhenAsked) {
  RunningTargetOptions target_options = options_.target;
  auto target = RunningTarget::open(target_options);
  ASSERT_TRUE(target.ok()) << target.status().message();
  const auto format = ConversationFormat::make((*target)->source(), true);
  ASSERT_TRUE(format.ok());
  auto prompts = read_prompts(options_.prompts, {});
  ASSERT_TRUE(prompts.ok());
  std::vector<AnswerTask> tasks;
  for (const Prompt& prompt : *prompts) tasks.push_back({&prompt, 0});
  std::atomic<bool> cancel = false;
  int done = 0;
  AnswerCalls calls;
  calls.done = [&](const Sample&, const std::vector<uint16_t>& taps) {
    EXPECT_TRUE(taps.empty());  // nobody recorded any
    cancel = ++done == 3;
    return Status();
  };
  calls.cancel = &cancel;
  auto counts = answer(**target, *format, options_.settings, tasks, calls);
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_GE(counts->samples, 3);
  EXPECT_LT(counts->samples, 24);
  EXPECT_EQ(counts->samples, done);

  // The target is fit for another run, which goes on in spite of nothing.
  cancel = false;
  done = -100;
  counts = answer(**target, *format, options_.settings, tasks, calls);
  ASSERT_TRUE(counts.ok()) << counts.status().message();
  EXPECT_EQ(counts->samples, 24);

  // An error of its caller ends it.
  calls.done = [](const Sample&, const std::vector<uint16_t>&) {
    return Status(StatusCode::kResourceExhausted, "full");
  };
  EXPECT_EQ(answer(**target, *format, options_.settings, tasks, calls).status().code(),
            StatusCode::kResourceExhausted);

  cancel = true;
  options_.cancel = &cancel;
  const GenerateResult result = generate(options_);
  EXPECT_EQ(result.counts.samples, 0);
  EXPECT_EQ(result.missing, 24);
}

TEST_F(AnswerTest, RefusesWhatCannotBe) {
  const auto message = [&](const auto& change) {
    GenerateOptions options = options_;
    change(options);
    const auto result = generate_data(options);
    EXPECT_FALSE(result.ok());
    EXPECT_FALSE(std::filesystem::exists(options.out)) << "made before all is checked";
    return result.status().message();
  };
  EXPECT_THAT(message([](auto& o) { o.samples = 0; }), HasSubstr("--samples 0"));
  EXPECT_THAT(message([](auto& o) { o.held_out = 1.0; }), HasSubstr("--held-out 1"));
  EXPECT_THAT(message([](auto& o) {
                o.settings.temperatures = {0.5, -1};
              }),
              HasSubstr("--temperature -1"));
  EXPECT_THAT(message([](auto& o) { o.settings.temperatures = {}; }), HasSubstr("temperature"));
  EXPECT_THAT(message([](auto& o) { o.settings.max_tokens = 0; }), HasSubstr("--max-tokens 0"));
  EXPECT_THAT(message([](auto& o) { o.target.sequences = 0; }), HasSubstr("batch"));
  EXPECT_THAT(message([](auto& o) { o.target.context = 2000; }), HasSubstr("2000"));
  EXPECT_THAT(message([](auto& o) { o.target.model = "/nowhere"; }), HasSubstr("/nowhere"));
  EXPECT_THAT(message([](auto& o) { o.plain = {"x"}; }), HasSubstr("--plain x"));
  EXPECT_THAT(message([](auto& o) { o.prompts = {"/nowhere.jsonl"}; }),
              HasSubstr("--prompts /nowhere.jsonl"));
  EXPECT_THAT(message([&](auto& o) { o.prompts = {scratch_.write("empty.jsonl", "\n\n")}; }),
              HasSubstr("--prompts FILE"));
  EXPECT_THAT(message([&](auto& o) { o.prompts = {scratch_.write("bad.jsonl", "{\"a\": 1}")}; }),
              HasSubstr("bad.jsonl:1"));
  EXPECT_THAT(message([&](auto& o) {
                o.selection.where = {*parse_prompt_range("task_id=1000..")};
                o.prompts = {scratch_.write("mbpp.jsonl", "{\"text\": \"a\", \"task_id\": 3}")};
              }),
              HasSubstr("--where"));
}

}  // namespace aerie::train::answer_test
