// A drafter of one's own, whole in this file: it is described, registered, asked for as
// --speculate has it and decoded with, and nothing below src/ knows of it. docs/adding.md walks
// through it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "draft/drafter.h"
#include "draft/option_keys.h"
#include "draft/sequence_states.h"
#include "draft/speculative_config.h"
#include "engine/engine.h"
#include "tests/testing/temporary_model.h"

namespace aerie::added_drafter_test {

// --- The drafter --------------------------------------------------------------------------------

extern const Method kCycleMethod;

struct CycleOptions {
  int period = 4;
  int num_tokens = 6;
};

// Takes it that the text goes on with its last `period` tokens, over and over.
class CycleDrafter final : public Drafter {
 public:
  explicit CycleDrafter(const CycleOptions& options) : options_(options) {}

  std::string_view method() const override { return kCycleMethod.name; }
  const DrafterNeeds& needs() const override { return needs_; }

  Status open(const DraftSequence& sequence) override {
    return states_.open(sequence, [] { return State(); });
  }
  void close(SequenceId id) override { states_.close(id); }

  Status propose(std::span<DraftRequest> requests) override {
    AERIE_RETURN_IF_ERROR(states_.check(requests));
    for (DraftRequest& request : requests) {
      const std::span<const int32_t> tokens = request.tokens;
      const auto period = static_cast<size_t>(options_.period);
      const int length = std::min(options_.num_tokens, request.max_nodes);
      for (int i = 0; i < length && tokens.size() >= period; ++i) {
        const size_t back = static_cast<size_t>(i) % period;
        request.tree->add(tokens[tokens.size() - period + back], i - 1, nullptr, 0.5f);
      }
    }
    return {};
  }
  Status observe(std::span<const DraftCommit> commits) override { return states_.check(commits); }

 private:
  struct State {};  // there is nothing to remember

  CycleOptions options_;
  DrafterNeeds needs_;
  SequenceStates<State> states_{kCycleMethod.name};
};

constexpr std::array kCycleOptions = {
    option_key("period", &CycleOptions::period, 1, 1024, "tokens after which the text repeats"),
    tokens_key(&CycleOptions::num_tokens),
};
constexpr auto kCycleKeys = keys_of(kCycleOptions);

Expected<std::unique_ptr<Drafter>> make_cycle(const MethodConfig& config, DraftHost& /*host*/) {
  CycleOptions options;
  read_options(config, kCycleOptions, options);
  return std::unique_ptr<Drafter>(std::make_unique<CycleDrafter>(options));
}

const Method kCycleMethod = {
    .name = "cycle",
    .what = "the last tokens once more",
    .keys = kCycleKeys,
    .make = make_cycle,
};

// --- What comes with it -------------------------------------------------------------------------

using testing::HasSubstr;

class AddedDrafter : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Status added = add_method(kCycleMethod);
    ASSERT_TRUE(added.ok()) << added.message();
  }
  AddedDrafter() : model_("added_drafter", spec()) {}

  static test::TinySpec spec() {
    test::TinySpec spec;
    spec.tokenizer = true;
    spec.vocab = test::kByteVocab;
    return spec;
  }

  Generation generate(const std::string& speculate, double temperature) const {
    const auto config = parse_speculative_spec(speculate);
    EXPECT_TRUE(config.ok()) << config.status().message();
    if (!config.ok()) return {};
    EngineOptions options;
    options.model = model_.path();
    options.threads = 1;
    options.speculation = *config;
    auto engine = Engine::open(options);
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    if (!engine.ok()) return {};
    Request request;
    request.prompt = {'O', 'n', 'c', 'e', ' ', 'o', 'n', 'c', 'e'};
    request.sampling.temperature = temperature;
    request.sampling.seed = 3;
    request.max_tokens = 60;
    request.ignore_eos = true;
    auto generation = (*engine)->generate(request, nullptr);
    EXPECT_TRUE(generation.ok()) << generation.status().message();
    return generation.ok() ? *generation : Generation();
  }

  test::TemporaryModel model_;
};

// What stands behind --speculate.
TEST_F(AddedDrafter, IsParsedAsAllOthersAre) {
  const auto config = parse_speculative_spec("cycle:period=2,num_speculative_tokens=3");
  ASSERT_TRUE(config.ok()) << config.status().message();
  ASSERT_EQ(config->methods.size(), 1u);
  EXPECT_EQ(config->methods[0].method, &kCycleMethod);
  EXPECT_EQ(config->methods[0].whole("period"), 2);
  EXPECT_EQ(config->tokens(), 3);
  EXPECT_EQ(to_string(*config), "cycle:period=2,num_speculative_tokens=3");
  EXPECT_EQ(parse_speculative_spec("cycle")->tokens(), CycleOptions().num_tokens);
  EXPECT_EQ(parse_speculative_spec("ngram,cycle")->methods.size(), 2u);
  EXPECT_EQ(parse_speculative_json(R"({"method": "cycle", "period": 2})")->tokens(), 6);

  const auto refusal = [](const char* spec) {
    return parse_speculative_spec(spec).status().message();
  };
  EXPECT_THAT(refusal("cycle:period=0"), HasSubstr("'period' must be 1 to 1024, not '0'"));
  EXPECT_THAT(refusal("cycle:window=5"),
              HasSubstr("'window' does not go with method cycle: method cycle takes period, "
                        "num_speculative_tokens"));
  EXPECT_THAT(refusal("circle"), HasSubstr(" or cycle"));
}

TEST_F(AddedDrafter, DraftsAndChangesNoToken) {
  for (const double temperature : {0.0, 0.9}) {
    const Generation plain = generate("none", temperature);
    ASSERT_EQ(plain.tokens.size(), 60u);
    for (const char* speculate :
         {"cycle", "cycle:period=1,num_speculative_tokens=3", "merge,ngram,cycle", "auto,cycle"}) {
      SCOPED_TRACE(speculate);
      const Generation fast = generate(speculate, temperature);
      EXPECT_EQ(fast.tokens, plain.tokens);
      if (std::string_view(speculate).starts_with("cycle")) {
        EXPECT_GT(fast.stats.drafted, 0);
      }
    }
  }
}

TEST_F(AddedDrafter, IsRefusedIfItCannotBeNamedOrMade) {
  const auto refusal = [](Method method) { return add_method(method).message(); };
  EXPECT_THAT(refusal(kCycleMethod), HasSubstr("'cycle': there is one of that name"));
  Method other = kCycleMethod;
  for (const char* name : {"auto", "none", "merge", "first"}) {
    other.name = name;
    EXPECT_THAT(refusal(other), HasSubstr("means something else"));
  }
  for (const char* name : {"", "a:b", "a,b", "a=b", "a b"}) {
    other.name = name;
    EXPECT_THAT(refusal(other), HasSubstr("separates settings"));
  }
  other.name = "other";
  other.make = nullptr;
  EXPECT_THAT(refusal(other), HasSubstr("make()"));
  other.make = make_cycle;
  other.keys = {};
  EXPECT_THAT(refusal(other), HasSubstr("num_speculative_tokens"));
}

}  // namespace aerie::added_drafter_test
