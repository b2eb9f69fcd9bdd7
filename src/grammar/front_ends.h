// From the notations that a grammar can be given in to rules.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/grammar_graph.h"

namespace aerie {

// Each adds rules to the builder and returns the one to begin with. Errors as compile_grammar().
Expected<GrammarBuilder::Rule> build_gbnf(std::string_view text, GrammarBuilder& builder);
Expected<GrammarBuilder::Rule> build_regex(std::string_view text, GrammarBuilder& builder);
Expected<GrammarBuilder::Rule> build_choice(const std::vector<std::string>& choices,
                                            GrammarBuilder& builder);
Expected<GrammarBuilder::Rule> build_json_object(GrammarBuilder& builder);
Expected<GrammarBuilder::Rule> build_json_schema(std::string_view text, GrammarBuilder& builder);

}  // namespace aerie
