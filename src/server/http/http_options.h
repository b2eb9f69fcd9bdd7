// Where an HttpServer listens, and its limits.
#pragma once

#include <cstddef>
#include <string>

#include "server/access/trusted_proxies.h"

namespace aerie::server {

struct HttpServerOptions {
  std::string host = "127.0.0.1";  // an address, or a name
  int port = 0;                    // 0: any that is free
  std::string tls_certificate;     // PEM files, both or none; the chain, the server's first
  std::string tls_key;

  TrustedProxies proxies;  // by whose X-Forwarded-For HttpRequest::client is

  int io_threads = 1;       // move bytes
  int handler_threads = 2;  // call the handler; GET has one more of its own, since it is quick
  int max_connections = 1024;
  size_t max_header_bytes = size_t{32} << 10;
  size_t max_body_bytes = size_t{16} << 20;
  size_t max_unsent_bytes = size_t{4} << 20;  // of a stream whose client does not read

  double read_seconds = 30.0;   // for a request to arrive whole
  double idle_seconds = 75.0;   // between requests
  double write_seconds = 60.0;  // without the client taking a byte of what there is for it
};

}  // namespace aerie::server
