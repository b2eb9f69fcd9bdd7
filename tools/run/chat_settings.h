// What /set changes in a chat.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aerie/sampling.h"
#include "base/status.h"

namespace aerie {

struct ChatSettings {
  SamplingParams sampling;
  int max_tokens = 0;  // 0: until the reply ends or the context is full
};

std::vector<std::string> setting_names();
// One line for each: its name and its value.
std::string settings_text(const ChatSettings& settings);
// kInvalidArgument, naming what there is or the range, and nothing is changed.
Status change_setting(std::string_view name, std::string_view value, int vocab,
                      ChatSettings& settings);

}  // namespace aerie
