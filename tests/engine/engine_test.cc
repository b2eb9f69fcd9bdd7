// The engine on a tiny model with a tokenizer: text, stops, cancelling, errors, with every drafter.

#include "engine/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>

#include "base/system/topology.h"
#include "tests/testing/temporary_model.h"
#include "tests/testing/tiny_model.h"
#include "tokenizer/detokenizer.h"

namespace aerie::engine_test {

using test::TemporaryModel;
using test::TinySpec;
using ::testing::HasSubstr;

TinySpec target_spec() {
  TinySpec spec;
  spec.tokenizer = true;
  spec.vocab = test::kByteVocab;
  spec.context = 512;
  return spec;
}

class EngineTest : public testing::Test {
 protected:
  static TinySpec other_spec() {
    TinySpec spec = target_spec();
    spec.layers = 1;
    spec.seed = 8;
    return spec;
  }
  static std::vector<SpeculativeConfig> drafters() {
    std::vector<SpeculativeConfig> configs = {parse_speculative_spec("ngram:gate=0").value(),
                                              drafting_with(target().path()),
                                              drafting_with(other().path())};
    // The second is asked where the first has no idea.
    configs.push_back(configs[0]);
    configs.back().methods.push_back(configs[2].methods[0]);
    return configs;
  }
  static SpeculativeConfig drafting_with(const std::string& model) {
    return parse_speculative_spec("draft_model:gate=0,model=" + model).value();
  }
  static EngineOptions options(const SpeculativeConfig& speculation = {}) {
    EngineOptions options;
    options.model = target().path();
    options.threads = 2;
    options.speculation = speculation;
    return options;
  }
  static std::unique_ptr<Engine> open(const EngineOptions& options) {
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    return std::move(engine).value();
  }
  static Status refusal(const EngineOptions& options) { return Engine::open(options).status(); }

  static Request request(double temperature, int max_tokens) {
    Request request;
    request.prompt = {'O', 'n', 'c', 'e', ' ', 'u', 'p', 'o', 'n', ' ', 'a'};
    request.sampling.temperature = temperature;
    request.sampling.seed = 5;
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    return request;
  }
  // Checks that what was streamed is the text.
  static Generation generate(Engine& engine, const Request& request) {
    std::string streamed;
    auto result = engine.generate(request, [&](std::string_view piece) { streamed.append(piece); });
    EXPECT_TRUE(result.ok()) << result.status().message();
    EXPECT_EQ(streamed, result->text);
    EXPECT_EQ(result->emitted.size(), result->tokens.size());
    return std::move(result).value();
  }

  static const TemporaryModel& target() {
    static const TemporaryModel model("target", target_spec());
    return model;
  }
  static const TemporaryModel& other() {
    static const TemporaryModel model("other", other_spec());
    return model;
  }
};

TEST_F(EngineTest, TextIsThatOfTheTokens) {
  const auto engine = open(options());
  for (const double temperature : {0.0, 0.9}) {
    const Generation out = generate(*engine, request(temperature, 100));
    ASSERT_EQ(out.tokens.size(), 100u);
    EXPECT_EQ(out.finish, FinishReason::kLength);
    Detokenizer detokenizer(engine->parts().tokenizer());
    std::string text;
    for (const int32_t token : out.tokens) detokenizer.push(token, text);
    detokenizer.finish(text);
    EXPECT_EQ(out.text, text);
    EXPECT_FALSE(text.empty());
    EXPECT_EQ(out.prompt_tokens, 11);
    EXPECT_EQ(out.target_passes, 1 + 99);
  }
}

TEST_F(EngineTest, SpeculationChangesNothing) {
  for (const kernels::KvType type : kernels::kAllKvTypes) {
    for (const SpeculativeConfig& speculation : drafters()) {
      EngineOptions o = options(speculation);
      o.cache_type = type;
      const auto engine = open(o);
      for (const double temperature : {0.0, 0.9}) {
        Request r = request(temperature, 150);
        const Generation fast = generate(*engine, r);
        EXPECT_GT(fast.stats.drafted, 0);
        EXPECT_EQ(fast.target_passes, 1 + fast.stats.rounds);
        r.speculate = false;
        const Generation plain = generate(*engine, r);
        EXPECT_EQ(plain.stats.drafted, 0);
        EXPECT_EQ(fast.tokens, plain.tokens)
            << to_string(speculation) << ", cache of " << kernels::kv_type_name(type);
        EXPECT_EQ(fast.text, plain.text);
      }
    }
  }
}

TEST_F(EngineTest, ARequestPicksASpeculation) {
  EngineOptions o = options(drafters()[0]);
  o.speculation.set_tokens(2);
  o.more_speculations = {SpeculativeConfig(), drafters()[1]};
  const auto engine = open(o);
  Request r = request(0.0, 60);
  const Generation first = generate(*engine, r);
  r.speculation = 1;
  const Generation none = generate(*engine, r);
  r.speculation = 2;
  const Generation last = generate(*engine, r);
  EXPECT_EQ(first.tokens, none.tokens);
  EXPECT_EQ(last.tokens, none.tokens);
  // Each is limited as if it were alone.
  EXPECT_EQ(first.stats.proposed_at.size(), 2u);
  EXPECT_EQ(none.stats.drafted, 0);
  EXPECT_EQ(last.stats.proposed_at.size(), 5u);
  EXPECT_GT(last.stats.mean_accepted_length(), 4.0);  // its draft model is the target
  for (const int wrong : {-1, 3}) {
    r.speculation = wrong;
    const auto refused = engine->generate(r, nullptr);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr("0 to 2"));
  }
}

TEST_F(EngineTest, RoundsAddUp) {
  const auto engine = open(options(drafters()[1]));
  const Generation out = generate(*engine, request(0.0, 60));
  int tokens = 0;
  double seconds = 0.0;
  for (const RoundTime& round : out.rounds) {
    EXPECT_GE(round.tokens, 1);
    tokens += round.tokens;
    seconds += round.seconds;
  }
  EXPECT_EQ(static_cast<int64_t>(out.rounds.size()), out.stats.rounds);
  EXPECT_EQ(tokens, 59);  // the prompt gives the first
  EXPECT_LE(seconds, out.generation_seconds);
  EXPECT_GT(out.prompt_times.of(Stage::kPrefill), 0.0);
  EXPECT_EQ(out.prompt_times.of(Stage::kPrefill), out.times.of(Stage::kPrefill));
  EXPECT_EQ(out.prompt_times.of(Stage::kVerify), 0.0);
}

TEST_F(EngineTest, AWeightCacheChangesNothing) {
  const std::filesystem::path folder =
      fmt::format("{}aerie_{}_weights", testing::TempDir(), getpid());
  std::filesystem::remove_all(folder);
  const auto files = [&] {
    const auto begin = std::filesystem::directory_iterator(folder);
    return std::distance(begin, std::filesystem::directory_iterator());
  };
  const Generation plain = generate(*open(options()), request(0.9, 40));
  std::vector<std::ptrdiff_t> kept;
  for (const SpeculativeConfig& speculation : drafters()) {
    for (int time = 0; time < 2; ++time) {
      EngineOptions cached = options(speculation);
      cached.weight_cache = folder;
      const Generation out = generate(*open(cached), request(0.9, 40));
      EXPECT_EQ(out.tokens, plain.tokens) << to_string(speculation);
    }
    kept.push_back(files());
  }
  // The target's, which is a draft model's too, and then another draft model's.
  EXPECT_EQ(kept, (std::vector<std::ptrdiff_t>{1, 1, 2, 2}));
  std::filesystem::remove_all(folder);
}

TEST_F(EngineTest, SeedsDecide) {
  const auto engine = open(options());
  Request r = request(1.2, 60);
  const Generation first = generate(*engine, r);
  EXPECT_EQ(generate(*engine, r).tokens, first.tokens);
  r.sampling.seed = 6;
  EXPECT_NE(generate(*engine, r).tokens, first.tokens);
  r.sampling.seed = 5;
  r.sampling.choice = 1;
  EXPECT_NE(generate(*engine, r).tokens, first.tokens);
}

// Where the text holds a stop string, the reply ends before it, with and without speculation.
TEST_F(EngineTest, StopStrings) {
  for (const SpeculativeConfig& speculation : drafters()) {
    const auto engine = open(options(speculation));
    Request r = request(0.9, 120);
    const std::string whole = generate(*engine, r).text;
    for (size_t at : {size_t{10}, whole.size() / 3, whole.size() / 2}) {
      const std::string stop = whole.substr(at, 4);
      r.stop = {"never in there", stop};
      r.speculate = true;
      const Generation fast = generate(*engine, r);
      r.speculate = false;
      const Generation plain = generate(*engine, r);
      EXPECT_EQ(fast.text, whole.substr(0, whole.find(stop)));
      EXPECT_EQ(fast.finish, FinishReason::kStop);
      EXPECT_EQ(fast.text, plain.text);
      EXPECT_EQ(fast.tokens, plain.tokens);
      EXPECT_EQ(plain.finish, FinishReason::kStop);
    }
  }
}

// Text that may still become a stop string is held back, and comes out when it does not.
TEST_F(EngineTest, HeldBackTextComesOutAtTheEnd) {
  const auto engine = open(options());
  Request r = request(0.9, 80);
  const std::string whole = generate(*engine, r).text;
  r.stop = {whole.substr(whole.size() - 3) + "and more"};
  std::string streamed;
  const auto out = engine->generate(r, [&](std::string_view piece) {
    streamed.append(piece);
    // Only the last piece may hold the beginning of the stop string.
    EXPECT_TRUE(streamed.size() <= whole.size() - 3 || streamed == whole) << streamed.size();
  });
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, whole);
  EXPECT_EQ(streamed, whole);
  EXPECT_EQ(out->finish, FinishReason::kLength);
}

TEST_F(EngineTest, EndTokens) {
  for (const SpeculativeConfig& speculation : drafters()) {
    const auto engine = open(options(speculation));
    Request r = request(1.0, 100);
    r.sampling.logit_bias = {{test::kTurnEnd, 4.0f}};
    const Generation on = generate(*engine, r);
    const auto end = std::find(on.tokens.begin(), on.tokens.end(), test::kTurnEnd);
    ASSERT_NE(end, on.tokens.end());
    EXPECT_EQ(on.tokens.size(), 100u);
    r.ignore_eos = false;
    const Generation ended = generate(*engine, r);
    EXPECT_EQ(ended.finish, FinishReason::kStop);
    EXPECT_EQ(ended.tokens, std::vector<int32_t>(on.tokens.begin(), end + 1));
    EXPECT_EQ(ended.text.find("im_end"), std::string::npos);
    r.speculate = false;
    EXPECT_EQ(generate(*engine, r).tokens, ended.tokens);
  }
}

TEST_F(EngineTest, EndsWhereTheContextDoes) {
  EngineOptions o = options(drafters()[1]);
  o.context = 64;
  const auto engine = open(o);
  Request r = request(0.9, 0);
  const Generation out = generate(*engine, r);
  EXPECT_EQ(out.tokens.size(), 64u - 11u + 1u);
  EXPECT_EQ(out.finish, FinishReason::kLength);
  r.speculate = false;
  EXPECT_EQ(generate(*engine, r).tokens, out.tokens);
}

TEST_F(EngineTest, Cancelling) {
  const auto engine = open(options(drafters()[0]));
  std::atomic<bool> cancel = false;
  Request r = request(0.9, 200);
  const Generation whole = generate(*engine, r);
  r.cancel = &cancel;
  int pieces = 0;
  const auto cut =
      engine->generate(r, [&](std::string_view) { cancel = cancel || ++pieces == 10; });
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->finish, FinishReason::kNone);
  ASSERT_LT(cut->tokens.size(), 200u);
  EXPECT_GE(cut->tokens.size(), 10u);
  EXPECT_TRUE(std::equal(cut->tokens.begin(), cut->tokens.end(), whole.tokens.begin()));
  EXPECT_EQ(whole.text.substr(0, cut->text.size()).size(), cut->text.size());

  // Before the prompt is read.
  const auto none = engine->generate(r, nullptr);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->tokens.empty());
  EXPECT_EQ(none->text, "");
  EXPECT_EQ(none->finish, FinishReason::kNone);
  // And the engine goes on.
  cancel = false;
  EXPECT_EQ(generate(*engine, r).tokens, whole.tokens);
}

TEST_F(EngineTest, ChatTemplate) {
  const auto engine = open(options());
  ASSERT_TRUE(engine->parts().chat_template().ok())
      << engine->parts().chat_template().status().message();
  const std::vector<ChatMessage> messages = {{"user", "Hi"}};
  const auto text = engine->parts().chat_template()->render(messages, true);
  ASSERT_TRUE(text.ok());
  std::vector<int32_t> ids;
  ASSERT_TRUE(engine->parts()
                  .tokenizer()
                  .encode(*text, {.add_special = false, .parse_special = true}, ids)
                  .ok());
  EXPECT_EQ(ids.front(), test::kTurnStart);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), test::kTurnEnd), 1);
}

TEST_F(EngineTest, FillsInItsDefaults) {
  EngineOptions o = options();
  o.threads = 0;
  const auto engine = open(o);
  EXPECT_EQ(engine->parts().options.context, 512);
  EXPECT_EQ(engine->parts().options.threads, default_threads());
  EXPECT_EQ(engine->parts().drafter(), nullptr);
  EXPECT_EQ(open(options(drafters()[0]))->parts().drafter()->method(), "ngram");
  EXPECT_EQ(open(options(drafters()[1]))->parts().drafter()->method(), "draft_model");
}

TEST_F(EngineTest, RefusesOptionsThatMakeNoSense) {
  const auto message = [](const EngineOptions& o) {
    const Status status = refusal(o);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.message();
    return status.message();
  };
  EngineOptions o = options();
  o.context = 513;
  EXPECT_THAT(message(o), testing::AllOf(HasSubstr("513"), HasSubstr("512")));
  o.context = 1;
  EXPECT_THAT(message(o), HasSubstr("1"));
  o = options();
  o.threads = -1;
  EXPECT_THAT(message(o), HasSubstr("-1"));
  o.threads = 5000;
  EXPECT_THAT(message(o), HasSubstr("5000"));
}

TEST_F(EngineTest, RefusesAFileThatIsNotThere) {
  EngineOptions o = options();
  o.model = "/nonexistent/model.gguf";
  EXPECT_EQ(refusal(o).code(), StatusCode::kNotFound);
  EXPECT_THAT(refusal(o).message(), HasSubstr("/nonexistent/model.gguf"));
  o = options(drafting_with("/nonexistent/draft.gguf"));
  EXPECT_EQ(refusal(o).code(), StatusCode::kNotFound);
  EXPECT_THAT(refusal(o).message(), HasSubstr("/nonexistent/draft.gguf"));
}

TEST_F(EngineTest, RefusesWhatDoesNotFitIntoMemory) {
  TinySpec spec = target_spec();
  spec.layers = 16;
  spec.heads = spec.kv_heads = 4;
  spec.context = 1 << 26;  // a cache of 256 GiB
  const TemporaryModel huge("huge", spec);
  EngineOptions o = options();
  o.model = huge.path();
  o.context = spec.context;
  const Status status = refusal(o);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(),
              testing::AllOf(HasSubstr(huge.path()), HasSubstr("cache"), HasSubstr("262144 MiB")));
  // Heads of 16 elements: 16 codes and a scale of 4 bytes instead of 32.
  o.cache_type = kernels::KvType::kQ8;
  EXPECT_THAT(refusal(o).message(), HasSubstr("163840 MiB"));
}

// A target that fits, and a draft whose cache for as many positions does not.
TEST_F(EngineTest, RefusesADraftModelThatDoesNotFitIntoMemory) {
  TinySpec thin = target_spec();
  thin.layers = thin.heads = thin.kv_heads = 1;
  thin.context = 1 << 20;
  TinySpec wide = target_spec();
  wide.layers = 64;
  wide.hidden = wide.ffn = 32;
  wide.heads = wide.kv_heads = 8;
  wide.head_dim = 64;
  wide.context = thin.context;  // 128 GiB, and room for what is drafted
  const TemporaryModel thin_model("thin", thin), wide_model("wide", wide);
  EngineOptions o = options(drafting_with(wide_model.path()));
  o.model = thin_model.path();
  o.context = thin.context;
  const Status status = refusal(o);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.message();
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr(wide_model.path()), HasSubstr("cache"),
                                               HasSubstr("131088 MiB of cache")));
}

TEST_F(EngineTest, RefusesADraftModelWithAnotherTokenizerIfItMustBeTheSame) {
  TinySpec renamed = target_spec();
  renamed.turn_end = "<|end|>";
  const TemporaryModel other_name("renamed", renamed);
  EngineOptions o = options(drafting_with(other_name.path() + ",vocabulary=same"));
  Status status = refusal(o);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr(other_name.path()));
  EXPECT_THAT(status.message(), HasSubstr("258 is '<|im_end|>' in the target and '<|end|>'"));

  TinySpec longer = target_spec();
  longer.vocab = 261;
  const TemporaryModel more("longer", longer);
  o = options(drafting_with(more.path() + ",vocabulary=same"));
  status = refusal(o);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), testing::AllOf(HasSubstr("261"), HasSubstr("id 259")));
}

// The target's own weights under another tokenizer draft what the target says; others do no harm.
TEST_F(EngineTest, DraftModelsOfOtherVocabulariesAreExact) {
  TinySpec renamed = target_spec();
  renamed.turn_end = "<|end|>";
  TinySpec stranger = other_spec();
  stranger.turn_end = "<|end|>";
  const TemporaryModel twin("twin", renamed), other_one("stranger", stranger);
  const auto plain = open(options());
  for (const char* way : {"", ",vocabulary=intersection,topk=3,num_speculative_tokens=9",
                          ",vocabulary=text", ",vocabulary=text,num_steps=9"}) {
    for (const TemporaryModel* model : {&twin, &other_one}) {
      const auto engine = open(options(drafting_with(model->path() + way)));
      for (const double temperature : {0.0, 0.9}) {
        const Generation out = generate(*engine, request(temperature, 60));
        EXPECT_EQ(out.tokens, generate(*plain, request(temperature, 60)).tokens)
            << way << ", temperature " << temperature;
        EXPECT_GT(out.stats.drafted, 0) << way;
        const bool alike =
            model == &twin && (temperature == 0.0 || std::strstr(way, "text") == nullptr);
        EXPECT_GT(out.stats.mean_accepted_length(), alike ? 1.5 : 0.99) << way;
      }
    }
  }
}

// SpecInfer: trees of several models, merged by prefix.
TEST_F(EngineTest, SeveralDraftModelsAreExact) {
  const auto plain = open(options());
  const std::string models =
      "draft_model:gate=0,model=" + other().path() +
      ",topk=2,num_speculative_tokens=6,draft_model:model=" + target().path() +
      ",topk=2,num_speculative_tokens=6";
  const auto engine = open(options(parse_speculative_spec("merge," + models).value()));
  EXPECT_EQ(engine->parts().drafter()->method(), "merge,draft_model,draft_model");
  for (const double temperature : {0.0, 0.9}) {
    const Generation out = generate(*engine, request(temperature, 60));
    EXPECT_EQ(out.tokens, generate(*plain, request(temperature, 60)).tokens);
    EXPECT_GT(out.stats.mean_accepted_length(), 2.0);
  }
}

TEST_F(EngineTest, RefusesRequestsThatItCannotServe) {
  const auto engine = open(options(drafters()[1]));
  const auto message = [&](const Request& r) {
    const auto out = engine->generate(r, nullptr);
    EXPECT_FALSE(out.ok());
    EXPECT_EQ(out.status().code(), StatusCode::kInvalidArgument);
    return out.status().message();
  };
  Request r = request(0.0, 10);
  r.prompt.assign(512, 'a');
  EXPECT_THAT(message(r), testing::AllOf(HasSubstr("512"), HasSubstr("511")));
  r.prompt.clear();
  EXPECT_THAT(message(r), HasSubstr("no tokens"));
  r.prompt = {100000};
  EXPECT_THAT(message(r), HasSubstr("100000"));
  r = request(-1.0, 10);
  EXPECT_THAT(message(r), HasSubstr("temperature"));
  // And serves the next.
  EXPECT_EQ(generate(*engine, request(0.0, 10)).tokens.size(), 10u);
  EXPECT_EQ(generate(*engine, request(0.0, 10)).tokens.size(), 10u);
}

}  // namespace aerie::engine_test
