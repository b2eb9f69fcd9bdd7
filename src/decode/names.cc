#include "decode/sequence.h"
#include "decode/stage_clock.h"

namespace aerie {

std::string_view finish_reason_name(FinishReason reason) {
  constexpr std::string_view kNames[] = {"none", "stop", "length", "error"};
  return kNames[static_cast<size_t>(reason)];
}

std::string_view token_origin_name(TokenOrigin origin) {
  constexpr std::string_view kNames[] = {"target", "accepted", "correction", "bonus"};
  return kNames[static_cast<size_t>(origin)];
}

std::string_view stage_name(Stage stage) {
  constexpr std::string_view kNames[] = {"prefill", "draft", "verify", "sample", "commit", "other"};
  return kNames[static_cast<size_t>(stage)];
}

}  // namespace aerie
