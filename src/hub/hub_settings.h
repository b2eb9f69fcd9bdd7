// Where the hub and its cache are, as the variables of Python's huggingface_hub say.
#pragma once

#include <functional>
#include <string>

namespace aerie {

struct HubSettings {
  // HF_HUB_CACHE, else HF_HOME/hub, else huggingface/hub in XDG_CACHE_HOME or ~/.cache. Empty where
  // no home is known.
  std::string cache;
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT, without a slash at its end
  // HF_TOKEN, else what the file of HF_TOKEN_PATH or HF_HOME/token holds; empty: none.
  std::string token;
  bool offline = false;  // HF_HUB_OFFLINE, or set_offline()
};

// The environment's, read each time: it may not change while another thread reads it.
HubSettings hub_settings();

// For the whole program: nothing is asked of the network.
void set_offline();

// For the whole program, before other threads start: who hears what was chosen, in lines without a
// newline. Nobody until then.
void set_hub_listener(std::function<void(const std::string& line)> listener);
void tell_hub_listener(const std::string& line);

}  // namespace aerie
