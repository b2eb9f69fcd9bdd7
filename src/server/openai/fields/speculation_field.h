// What a request says about speculation.
#pragma once

#include <string>
#include <vector>

#include "engine/service.h"
#include "server/openai/fields/field_reader.h"

namespace aerie::server {

// "speculation": true, false, "off", "ngram", {"enabled": false} or {"method": "ngram", "depth":
// 3}. A method is one of `offered`: its short form, or its name alone.
void read_speculation(FieldReader& request, const std::vector<std::string>& offered, Request& out);

}  // namespace aerie::server
