#include "decode/sequence.h"
#include "decode/stage_clock.h"

namespace aerie {

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return "none";
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
  }
  return "none";
}

std::string_view stage_name(Stage stage) {
  switch (stage) {
    case Stage::kPrefill:
      return "prefill";
    case Stage::kDraft:
      return "draft";
    case Stage::kVerify:
      return "verify";
    case Stage::kSample:
      return "sample";
    case Stage::kCommit:
      return "commit";
    case Stage::kOther:
      return "other";
  }
  return "other";
}

}  // namespace aerie
