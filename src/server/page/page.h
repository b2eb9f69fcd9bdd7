// The web page, and other files that are part of the program.
#pragma once

#include <string_view>

#include "server/http/exchange.h"

namespace aerie::server {

// Whether it is the page, "/", or a file of it.
bool is_page_path(std::string_view path);

// Requires is_page_path().
void send_page(std::string_view path, Answer& answer);

// The description of the API.
std::string_view openapi_text();

}  // namespace aerie::server
