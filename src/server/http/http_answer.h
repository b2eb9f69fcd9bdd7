// An Answer that a Connection sends. For http_connection.cc alone.
#pragma once

#include <memory>
#include <string>

#include "server/http/http_connection.h"

namespace aerie::server {

std::shared_ptr<Answer> make_answer(std::shared_ptr<ConnectionContext> context,
                                    std::shared_ptr<Connection> connection, uint64_t number,
                                    std::string request_id);

// Headers that every answer has, but for those on its length and on the connection.
std::string answer_head(int status, std::string_view content_type, std::string_view request_id,
                        const Headers& headers);

}  // namespace aerie::server
