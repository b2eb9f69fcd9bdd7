#include "measure/load/made/made_prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>
#include <utility>

#include "base/errors.h"
#include "base/philox.h"
#include "base/progress.h"
#include "report/text_file.h"

namespace aerie::measure {
namespace {

constexpr int kMostTokens = 1 << 24;
constexpr const char* kRequest = "Pick as many lines as you can from these poem lines:\n";

constexpr std::string_view kWords[] = {
    "time",     "year",    "people", "way",     "day",    "man",     "thing",    "woman",  "life",
    "child",    "world",   "school", "state",   "family", "group",   "country",  "hand",   "part",
    "place",    "case",    "week",   "company", "system", "program", "question", "work",   "number",
    "night",    "point",   "home",   "water",   "room",   "mother",  "area",     "money",  "story",
    "fact",     "month",   "lot",    "right",   "study",  "book",    "eye",      "job",    "word",
    "business", "issue",   "side",   "kind",    "head",   "house",   "service",  "friend", "father",
    "power",    "hour",    "game",   "line",    "end",    "member",  "law",      "car",    "city",
    "name",     "team",    "minute", "idea",    "body",   "back",    "face",     "others", "level",
    "office",   "door",    "health", "person",  "art",    "war",     "history",  "party",  "result",
    "change",   "morning", "reason", "girl",    "moment", "air",     "teacher",  "force",  "food",
    "land",     "music",   "river",  "light",   "paper",  "sea"};

// Random numbers, the same for the same seed and stream.
class Draws {
 public:
  Draws(uint64_t seed, uint32_t stream)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, stream_(stream) {}

  // 0 to below `end`.
  int64_t below(int64_t end) {
    const auto index = static_cast<uint32_t>(next_ & 0xFFFFFFFF);
    const auto above = static_cast<uint32_t>(next_++ >> 32);
    const PhiloxBlock random = philox4x32({index, above, stream_, 0x6d616465}, key_);
    const double uniform = uniform53(random[0], random[1]);  // above 0, at most 1
    return std::min(end - 1, static_cast<int64_t>(uniform * static_cast<double>(end)));
  }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }

 private:
  PhiloxKey key_;
  uint32_t stream_;
  uint64_t next_ = 0;
};

Status check_length(const char* flag, int value, int least) {
  if (value >= least && value <= kMostTokens) return {};
  return invalid_argument("{} {}: give {} to {} tokens", flag, value, least, kMostTokens);
}

struct Word {
  std::string text;  // with the space before it
  std::vector<int32_t> ids;
  int64_t length = 1;
};

// Those of one token, where there are enough.
Expected<std::vector<Word>> words_of(ServerTokens& tokens) {
  constexpr size_t kEnough = 16;
  std::vector<Word> all, single;
  for (const std::string_view text : kWords) {
    Word word = {fmt::format(" {}", text), {}, 1};
    if (tokens.counts()) {
      AERIE_ASSIGN_OR_RETURN(word.ids, tokens.ids(word.text));
      word.length = std::ssize(word.ids);
      if (word.length == 0) continue;
    }
    if (word.length == 1) single.push_back(word);
    all.push_back(std::move(word));
  }
  if (single.size() >= kEnough) return single;
  if (!all.empty()) return all;
  return invalid_data("the server makes no tokens of words");
}

// Adds so many tokens: the last word's ids may be cut, its text stays whole.
void add_words(const std::vector<Word>& words, int64_t length, Draws& draws, Prompt& prompt) {
  while (length > 0) {
    const Word& word = words[static_cast<size_t>(draws.below(std::ssize(words)))];
    prompt.turns.front() += word.text;
    const auto taken = std::min(length, std::ssize(word.ids));
    prompt.ids.insert(prompt.ids.end(), word.ids.begin(), word.ids.begin() + taken);
    length -= word.length;
  }
}

struct Range {
  int64_t least, most;
};

Range range_of(int64_t length, double share, int64_t least) {
  const auto value = static_cast<double>(length);
  return {std::max(least, static_cast<int64_t>(std::floor(value * (1.0 - share)))),
          static_cast<int64_t>(std::ceil(value * (1.0 + share)))};
}

// What the lines come to; asked in pieces that any server takes.
Expected<double> mean_length(std::span<const std::string> lines, ServerTokens& tokens) {
  constexpr size_t kPiece = 64;
  int64_t sum = 0;
  for (size_t from = 0; from < lines.size(); from += kPiece) {
    std::string text;
    for (const std::string& line : lines.subspan(from, std::min(kPiece, lines.size() - from))) {
      text += line;
    }
    AERIE_ASSIGN_OR_RETURN(const int64_t count, tokens.count(text));
    sum += count - std::ssize(tokens.front());
  }
  return std::max(1.0, static_cast<double>(sum) / static_cast<double>(lines.size()));
}

Expected<std::vector<std::string>> read_lines(const std::string& file) {
  AERIE_ASSIGN_OR_RETURN(const std::string text, read_text_file(file, "--dataset-path"));
  std::vector<std::string> lines;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    if (rest.substr(0, end).find_first_not_of(" \t\r") != std::string_view::npos) {
      lines.push_back(fmt::format("{}\n", rest.substr(0, end)));
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  if (!lines.empty()) return lines;
  return invalid_argument("--dataset-path {}: it has no lines", file);
}

class Sonnets {
 public:
  Sonnets(const SonnetPrompts& options, std::vector<std::string> lines, bool chat,
          ServerTokens& tokens)
      : options_(options), lines_(std::move(lines)), chat_(chat), tokens_(tokens) {}

  Status plan();
  Expected<std::string> make(Draws& draws);

 private:
  Expected<int64_t> length(const std::string& text) {
    return chat_ ? tokens_.count_message(text) : tokens_.count(text);
  }

  const SonnetPrompts& options_;
  const std::vector<std::string> lines_;
  const bool chat_;
  ServerTokens& tokens_;
  std::string prefix_;  // the request and the lines that all have
  int64_t drawn_ = 0;   // lines behind it
};

Status Sonnets::plan() {
  AERIE_ASSIGN_OR_RETURN(const int64_t request, length(kRequest));
  if (options_.input <= request) {
    return invalid_argument(
        "--sonnet-input-len {}: the request without any line takes {} tokens: give more",
        options_.input, request);
  }
  AERIE_ASSIGN_OR_RETURN(const double mean, mean_length(lines_, tokens_));
  const auto lines_in = [&](int64_t length) {
    return std::max<int64_t>(0, std::lround(static_cast<double>(length - request) / mean));
  };
  const int64_t fixed = std::min<int64_t>(lines_in(options_.prefix), std::ssize(lines_));
  drawn_ = lines_in(options_.input) - fixed;
  prefix_ = kRequest;
  for (int64_t i = 0; i < fixed; ++i) prefix_ += lines_[static_cast<size_t>(i)];
  if (drawn_ >= 0) return {};
  return invalid_argument("--sonnet-prefix-len {}: give no more than --sonnet-input-len {}",
                          options_.prefix, options_.input);
}

Expected<std::string> Sonnets::make(Draws& draws) {
  constexpr int kTries = 8;  // before all make do with a line less
  for (int tries = 1;; ++tries) {
    std::string text = prefix_;
    for (int64_t i = 0; i < drawn_; ++i) {
      text += lines_[static_cast<size_t>(draws.below(std::ssize(lines_)))];
    }
    AERIE_ASSIGN_OR_RETURN(const int64_t taken, length(text));
    if (taken <= options_.input) return text;
    if (drawn_ == 0) {
      return invalid_argument("--sonnet-prefix-len {}: its lines take {} tokens: give fewer",
                              options_.prefix, taken);
    }
    if (tries % kTries == 0) --drawn_;
  }
}

Prompt prompt_of(const char* set, int number, int output) {
  Prompt prompt;
  prompt.name = fmt::format("{}:{}", set, number + 1);
  prompt.task = set;
  prompt.turns = {""};
  prompt.number = number;
  prompt.max_tokens = output;
  return prompt;
}

}  // namespace

Expected<std::vector<Prompt>> make_random_prompts(const RandomPrompts& options, int count,
                                                  uint64_t seed, ServerTokens& tokens) {
  AERIE_RETURN_IF_ERROR(check_length("--random-input-len", options.input, 0));
  AERIE_RETURN_IF_ERROR(check_length("--random-output-len", options.output, 1));
  AERIE_RETURN_IF_ERROR(check_length("--random-prefix-len", options.prefix, 0));
  if (!(options.range >= 0.0 && options.range < 1.0)) {
    return invalid_argument("--random-range-ratio {}: give 0 to below 1", options.range);
  }
  const int64_t own = std::max<int64_t>(0, options.input - std::ssize(tokens.front()));
  const Range input = range_of(own, options.range, 0);
  const Range output = range_of(options.output, options.range, 1);
  if (options.prefix + input.least < 1) {
    return invalid_argument("--random-input-len {}: a prompt could be empty: give more",
                            options.input);
  }
  AERIE_ASSIGN_OR_RETURN(const std::vector<Word> words, words_of(tokens));
  Prompt prefix = prompt_of("random", 0, 0);
  prefix.ids = tokens.front();
  Draws of_prefix(seed, 0);
  add_words(words, options.prefix, of_prefix, prefix);
  std::vector<Prompt> prompts;
  for (int i = 0; i < count; ++i) {
    Draws draws(seed, static_cast<uint32_t>(i) + 1);
    const int64_t length = draws.between(input.least, input.most);
    Prompt prompt =
        prompt_of("random", i, static_cast<int>(draws.between(output.least, output.most)));
    prompt.turns = prefix.turns;
    prompt.ids = prefix.ids;
    add_words(words, length, draws, prompt);
    if (!tokens.counts()) prompt.ids.clear();
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Expected<std::vector<Prompt>> make_sonnet_prompts(const SonnetPrompts& options,
                                                  const std::string& file, bool chat, int count,
                                                  uint64_t seed, ServerTokens& tokens) {
  AERIE_RETURN_IF_ERROR(check_length("--sonnet-input-len", options.input, 1));
  AERIE_RETURN_IF_ERROR(check_length("--sonnet-output-len", options.output, 1));
  AERIE_RETURN_IF_ERROR(check_length("--sonnet-prefix-len", options.prefix, 0));
  AERIE_ASSIGN_OR_RETURN(std::vector<std::string> lines, read_lines(file));
  Sonnets sonnets(options, std::move(lines), chat, tokens);
  AERIE_RETURN_IF_ERROR(sonnets.plan());
  Progress progress("making prompts", count);
  std::vector<Prompt> prompts;
  for (int i = 0; i < count; ++i) {
    Draws draws(seed, static_cast<uint32_t>(i) + 1);
    Prompt prompt = prompt_of("sonnet", i, options.output);
    AERIE_ASSIGN_OR_RETURN(prompt.turns.front(), sonnets.make(draws));
    prompt.chat = true;
    prompts.push_back(std::move(prompt));
    progress.add(1);
  }
  return prompts;
}

}  // namespace aerie::measure
