// The settings of a training method. Name, field, range and meaning of each stand in one line; the
// default is what the field holds.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "train/nn/losses.h"

namespace aerie::train {

struct Setting {
  // Takes a word; kInvalidArgument for one that means nothing.
  using Parse = std::function<Status(const std::string& word)>;
  struct Range {
    double least, most;
  };

  // Of the flag, without its dashes. "!no-bias" is given as "no-bias" and makes its field false.
  std::string name;
  std::string what;  // a line of help
  // A bool is a flag without a value.
  std::variant<bool*, int*, int64_t*, double*, std::string*, std::vector<int32_t>*, Parse> field;
  std::optional<Range> range = {};  // of a number
  std::string word = {};            // of a Parse: what it begins with; empty: `what` says it
  bool negated = false;             // by the !, which the name then is without
  bool shows_default = true;        // false: `what` says it, or there is none
  // Others by their names: those that it does not go with, and one that it does not go without.
  std::vector<std::string> excludes = {};
  std::string needs = {};
};

// A number for a setting by its name.
struct SettingValue {
  std::string_view name;
  double value = 0.0;
};

// Fields must outlive what is parsed.
class SettingList {
 public:
  // Returned references stay valid.
  template <typename Field>
  Setting& add(std::string name, Field& field, std::string what) {
    return put({std::move(name), std::move(what), &field});
  }
  template <typename Field>
  Setting& add(std::string name, Field& field, Setting::Range range, std::string what) {
    return put({std::move(name), std::move(what), &field, range});
  }
  // One of the words that `parse`, an Expected<Field>(std::string_view), knows.
  template <typename Field, typename Parser>
  Setting& add_word(std::string name, Field& field, Parser parse, std::string_view word,
                    std::string what) {
    const auto take = [&field, parse](const std::string& text) -> Status {
      AERIE_ASSIGN_OR_RETURN(field, parse(text));
      return {};
    };
    return put({std::move(name), std::move(what), take, {}, std::string(word)});
  }

  // Those that mean the same in several methods.
  void add_depth(int& depth);
  void add_intermediate(int64_t& width);
  void add_loss(Divergence& loss);
  void add_loss(std::optional<Divergence>& loss);  // none: cross entropy
  // The target's ids that can be drafted: the most frequent of the data, put there before the
  // method is made, or none, which stands for all.
  void add_draft_vocab(std::vector<int32_t>& ids);

  // Requires a setting of that name that is a number.
  void set(const SettingValue& value);

  // In the order in which they were added.
  const std::deque<Setting>& all() const { return all_; }
  // Of add_draft_vocab().
  struct DraftVocab {
    int64_t size = 0;                     // 0: all
    std::vector<int32_t>* ids = nullptr;  // null: there is no such setting
  };
  const std::shared_ptr<DraftVocab>& draft_vocab() const { return draft_vocab_; }

 private:
  Setting& put(Setting setting);

  std::deque<Setting> all_;
  std::shared_ptr<DraftVocab> draft_vocab_ = std::make_shared<DraftVocab>();
};

}  // namespace aerie::train
