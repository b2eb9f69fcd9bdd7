// The method "custom": a drafter of the program that opened the engine (aerie/drafter.h).
#pragma once

#include <memory>

#include "aerie/drafter.h"
#include "draft/drafter.h"
#include "draft/method.h"

namespace aerie {

inline constexpr std::string_view kCustomName = "custom";

// Makes the method known, the first time. Safe to call from any thread that parses settings only
// afterwards. Programs that open no drafters of their own do without it.
const Status& add_custom_method();

// `drafter` as one of the engine's, for at most `num_tokens` nodes a round over `vocab` tokens.
std::unique_ptr<Drafter> make_custom_drafter(std::shared_ptr<CustomDrafter> drafter, int num_tokens,
                                             int vocab);

}  // namespace aerie
