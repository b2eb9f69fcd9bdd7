// What an Api lets requests do.
#pragma once

#include <string>
#include <vector>

namespace aerie::server {

struct ApiOptions {
  std::vector<std::string> model_names;  // what requests may call the model, the first is shown;
                                         // empty: Service::model_name()
  int stream_interval = 1;    // rounds whose tokens share a chunk of a stream, after the first
  bool priorities = false;    // requests may have one; else all are equal
  int max_choices = 128;      // `n` and `best_of`, over all prompts of a request
  int max_prompt_tokens = 0;  // 0: the context
  double max_seconds = 0.0;   // of a request; 0: no limit
};

}  // namespace aerie::server
