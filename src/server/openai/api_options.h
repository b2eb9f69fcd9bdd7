// What an Api lets requests do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "aerie/request.h"
#include "model/import/suggested_sampling.h"

namespace aerie::server {

// By what requests are of one tenant: nothing reaches one of what was learnt of another's text.
enum class TenantBy : uint8_t {
  kKey,     // the API key; without keys, the client's address
  kHeader,  // the header of kTenantHeader, which every request for text must have, within the key
  kNone,    // all are
};

struct ApiOptions {
  std::vector<std::string> model_names;  // what requests may call the model, the first is shown;
                                         // empty: Service::model_name()
  int stream_interval = 1;      // rounds whose tokens share a chunk of a stream, after the first
  bool strict_schemas = false;  // keywords and formats that are not known are refused
  bool priorities = false;      // requests may have one; else all are equal
  int max_choices = 128;        // `n` and `best_of`, over all prompts of a request
  int max_prompt_tokens = 0;    // 0: the context
  double max_seconds = 0.0;     // of a request; 0: no limit
  TenantBy tenant_by = TenantBy::kKey;
  bool share_learning = false;  // what is learnt of one tenant's text serves all
  double holdback = 0.0;  // of requests that may speculate, the share that is answered plainly
  bool holdback_gates = false;  // where that shows a loss, the others are
  bool allow_trace = false;     // requests may ask for what was drafted
  // How the model marks calls and reasoning, by the names of chat/dialect.h, which knows what is
  // possible; "auto": as its chat template shows.
  std::string tool_call_parser = "auto";
  std::string reasoning_parser = "auto";
  std::optional<Pooling> pooling;  // of embeddings; else Service::pooling()
  SuggestedSampling sampling;      // where a request says nothing; else OpenAI's defaults
};

}  // namespace aerie::server
