#include "cli/target_flags.h"

#include <fmt/format.h>

#include "cli/http_client.h"
#include "cli/local_server.h"
#include "cli/server_flags.h"

namespace invar {

void TargetFlags::declare(Flags& flags) {
  flags.section("Server");
  flags.text("--server", &server_, "ADDRESS",
             "a running server, http://HOST:PORT or unix:/PATH (default: load the model here)");
  flags.text("--api-key", &api_key_, "KEY|FILE",
             "the key that the server asks for; of a file, the first line");
  flags.section("Model");
  flags.text("--chat-template", &model.chat_template, "FILE", "a Jinja template instead of the model's own");
  flags.text("--scripted", &model.script, "FILE",
             "answer from this file instead of the model (docs/scripted.md)");
  engine.declare(flags);
}

Status TargetFlags::finish(const Flags& flags) {
  if (!is_remote()) {
    if (!api_key_.empty()) return invalid_argument("--api-key is for a running server: give --server, too");
    return {};
  }
  if (const std::string flag = flags.first_given({"Model", "Engine"}); !flag.empty())
    return invalid_argument(fmt::format(
        "{} is about a model that is loaded here; the one at --server has its own: leave one of the two out",
        flag));
  if (const auto address = parse_server_address(server_); !address.ok()) return address.status();
  if (api_key_.empty()) return {};
  auto keys = api_keys_of(api_key_);
  if (!keys.ok()) return keys.status();
  api_key_ = keys->front();
  return {};
}

Result<std::unique_ptr<ApiTarget>> TargetFlags::open() {
  if (is_remote()) {
    ASSIGN_OR_RETURN(ServerAddress address, parse_server_address(server_));
    ASSIGN_OR_RETURN(std::unique_ptr<HttpClient> client, HttpClient::create(std::move(address), api_key_));
    return std::unique_ptr<ApiTarget>(std::move(client));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<LocalServer> local, LocalServer::load(engine, model));
  return std::unique_ptr<ApiTarget>(std::move(local));
}

}  // namespace invar
