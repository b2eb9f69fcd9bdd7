#include <fmt/format.h>

#include "grammar/front_ends.h"

namespace aerie {

Expected<GrammarBuilder::Rule> build_choice(const std::vector<std::string>& choices,
                                            GrammarBuilder& builder) {
  if (choices.empty()) {
    return Status(StatusCode::kInvalidArgument, "a choice needs at least one text to choose");
  }
  std::vector<GrammarBuilder::Expr> branches;
  for (size_t i = 0; i < choices.size(); ++i) {
    // The end token alone would be the whole output.
    if (choices[i].empty()) {
      return Status(StatusCode::kInvalidArgument, fmt::format("choice {} is empty", i));
    }
    branches.push_back(builder.literal(choices[i]));
  }
  const GrammarBuilder::Rule root = builder.add_rule("choice");
  builder.define(root, builder.any_of(std::move(branches)));
  return root;
}

}  // namespace aerie
