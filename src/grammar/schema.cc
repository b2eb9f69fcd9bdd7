#include "grammar/schema.h"
namespace aerie::grammar {
Expected<RuleId> parse_schema(std::string_view, RuleSet&) {
  return Status(StatusCode::kUnsupported, "JSON schemas cannot be compiled");
}
}  // namespace aerie::grammar
