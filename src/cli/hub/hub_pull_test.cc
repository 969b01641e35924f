#include "cli/hub/hub_pull.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>

#include "base/hash.h"
#include "cli/hub/hub_lock.h"
#include "cli/hub/testing/fake_hub.h"

namespace invar {
namespace {

namespace fs = std::filesystem;
using testing::FakeHub;
using testing::FakeReply;
using testing::FakeRequest;

constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";
constexpr char kModel[] = "model-Q4_K_M.gguf";
// `printf '{"a": 1}' | git hash-object --stdin`.
constexpr char kConfig[] = "{\"a\": 1}", kConfigId[] = "4a036f56bb619924ec4189bd84ed716c766971ae";

std::string bytes(size_t n) {
  std::string out(n, '\0');
  for (size_t i = 0; i < n; ++i)
    out[i] = char((i * 2654435761u) >> 13);
  return out;
}

std::string content_of(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// A repository with one model of 100,000 bytes, which the hub leaves to a second server; and the pull of it.
class HubPull : public ::testing::Test {
 protected:
  HubPull()
      : model(bytes(100'000)),
        folder(fs::path(::testing::TempDir()) / fmt::format("hub-pull-{}", ::getpid())),
        cache((folder / "hub").string()),
        store([this](const FakeRequest& r) { return on_store(r); }),
        hub([this](const FakeRequest& r) { return on_hub(r); }) {
    fs::remove_all(folder);
    options.hub.endpoint = hub.origin();
    options.hub.token = "hf_secret";
    options.hub.use_proxies = false;
    options.hub.wait = [this](double seconds) { waits.push_back(seconds); };
    options.segment_bytes = 16'384;
    on_store = [this](const FakeRequest& r) { return FakeHub::file(r, model); };
    on_hub = [this](const FakeRequest& r) { return honest(r); };
  }
  ~HubPull() override { fs::remove_all(folder); }

  FakeReply honest(const FakeRequest& r) {
    if (r.path.starts_with("/api/")) return {200, {}, listing, -1};
    return FakeHub::redirect(store.origin() + "/signed?Signature=xyz");
  }
  std::string list(const std::string& siblings, const std::string& commit = kCommit) {
    return fmt::format(R"({{"id":"o/n","sha":"{}","siblings":[{}]}})", commit, siblings);
  }
  std::string large(const std::string& path, const std::string& content) {
    return fmt::format(R"({{"rfilename":"{}","size":{},"blobId":"x","lfs":{{"sha256":"{}","size":{}}}}})",
                       path, content.size(), hex(sha256(content)), content.size());
  }
  static std::string small(const std::string& path) {
    return fmt::format(R"({{"rfilename":"{}","size":8,"blobId":"{}"}})", path, kConfigId);
  }
  Result<Pulled> run(const std::string& name = "o/n") { return pull(cache, *parse_hub_name(name), options); }
  fs::path repo() const { return folder / "hub" / "models--o--n"; }
  fs::path blob() const { return repo() / "blobs" / hex(sha256(model)); }
  // The error's code and text, and that nothing that should not be is in it or left behind.
  void expect_error(const Result<Pulled>& r, Code code, const std::string& text) {
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.status().code(), code) << r.status().message();
    EXPECT_NE(r.status().message().find(text), std::string::npos) << r.status().message();
    for (const char* secret : {"hf_secret", "Signature"})
      EXPECT_EQ(r.status().message().find(secret), std::string::npos) << r.status().message();
    EXPECT_FALSE(fs::exists(blob()));
    EXPECT_FALSE(fs::exists(repo() / "refs" / "main"));
  }

  std::string model, listing = list(large(kModel, model));
  fs::path folder;
  HubCache cache;
  PullOptions options;
  std::vector<double> waits;
  std::mutex mutex;
  FakeHub::Handler on_store, on_hub;
  FakeHub store, hub;
};

TEST_F(HubPull, makes_the_layout_that_other_tools_share_and_finds_it_again) {
  listing = list(large(kModel, model) + "," + large("model-Q8_0.gguf", "other") + "," + small("README.md"));
  const auto pulled = run();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_EQ(pulled->commit, kCommit);
  const fs::path snapshot = repo() / "snapshots" / kCommit / kModel;
  EXPECT_EQ(pulled->path, snapshot.string());
  EXPECT_EQ(fs::read_symlink(snapshot).string(), "../../blobs/" + hex(sha256(model)));
  EXPECT_TRUE(content_of(snapshot) == model);
  EXPECT_EQ(content_of(repo() / "refs" / "main"), kCommit);
  EXPECT_EQ(*cache.find(*parse_hub_name("o/n")), snapshot.string());
  EXPECT_EQ(*cache.find(*parse_hub_name("o/n:Q4_K_M")), snapshot.string());
  EXPECT_EQ(*cache.find(*parse_hub_name(std::string("o/n:") + kModel + "@" + kCommit)), snapshot.string());
  EXPECT_EQ(cache.find(*parse_hub_name("o/n@other")).status().code(), Code::kNotFound);
  EXPECT_EQ(cache.find(*parse_hub_name("o/m")).status().code(), Code::kNotFound);
  // A second time nothing is fetched.
  const int before = store.count("/signed");
  const auto again = run();
  ASSERT_TRUE(again.ok());
  EXPECT_FALSE(again->files[0].fetched);
  EXPECT_EQ(store.count("/signed"), before);
  for (const auto& entry : fs::directory_iterator(repo() / "blobs"))
    EXPECT_EQ(entry.path().filename().string().size(), 64u) << "left over: " << entry.path();
}

TEST_F(HubPull, the_token_goes_to_the_hub_and_to_no_other_host) {
  ASSERT_TRUE(run().ok());
  ASSERT_GE(hub.requests().size(), 2u);
  for (const FakeRequest& r : hub.requests())
    EXPECT_EQ(r.fields.at("authorization"), "Bearer hf_secret") << r.path;
  ASSERT_GE(store.requests().size(), 7u);  // segments
  for (const FakeRequest& r : store.requests())
    EXPECT_FALSE(r.fields.contains("authorization")) << r.path;
}

TEST_F(HubPull, a_renamed_repository_is_followed_on_the_same_host_with_the_token) {
  on_hub = [this](const FakeRequest& r) {
    if (r.path.starts_with("/api/models/o/n"))
      return FakeReply{307, {"Location: /api/models/new/n?blobs=true"}, "", -1};
    return honest(r);
  };
  ASSERT_TRUE(run().ok());
  for (const FakeRequest& r : hub.requests())
    EXPECT_TRUE(r.fields.contains("authorization")) << r.path;
}

TEST_F(HubPull, small_files_are_checked_by_their_git_id) {
  listing = list(small("config.json") + "," + large("model.safetensors", model));
  on_hub = [this](const FakeRequest& r) {
    return r.path.ends_with("/config.json") ? FakeHub::file(r, kConfig) : honest(r);
  };
  const auto pulled = run();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_EQ(pulled->path, (repo() / "snapshots" / kCommit).string());
  EXPECT_EQ(content_of(fs::path(pulled->path) / "config.json"), kConfig);
  EXPECT_EQ(*cache.find(*parse_hub_name("o/n")), pulled->path);
  fs::remove_all(folder);
  on_hub = [this](const FakeRequest& r) {
    return r.path.ends_with("/config.json") ? FakeHub::file(r, "{\"a\": 2}") : honest(r);
  };
  expect_error(run(), Code::kCorrupt, "git id");
}

TEST_F(HubPull, connections_that_break_go_on_where_they_broke) {
  on_store = [this](const FakeRequest& r) {
    FakeReply reply = FakeHub::file(r, model);
    if (r.number <= 9) reply.cut = int64_t(reply.body.size() / 2);
    return reply;
  };
  const auto pulled = run();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_TRUE(content_of(blob()) == model);
  uint64_t asked = 0;
  for (const FakeRequest& r : store.requests()) {
    size_t first = 0, last = 0;
    ASSERT_EQ(std::sscanf(r.fields.at("range").c_str(), "bytes=%zu-%zu", &first, &last), 2);
    asked += last - first + 1;
  }
  EXPECT_LT(asked, 200'000u);  // nothing was asked for again that had come
}

TEST_F(HubPull, an_interrupted_download_is_taken_up_by_the_next_call) {
  std::atomic<bool> stop{false};
  options.hub.stop = &stop;
  options.hub.parallel = 1;
  on_store = [&](const FakeRequest& r) {
    if (r.number == 4) stop = true;
    return FakeHub::file(r, model);
  };
  EXPECT_EQ(run().status().code(), Code::kCancelled);
  EXPECT_FALSE(fs::exists(blob()));
  EXPECT_TRUE(fs::exists(blob().string() + ".invar-part"));
  stop = false;
  on_store = [this](const FakeRequest& r) { return FakeHub::file(r, model); };
  const int before = store.count("/signed");
  const auto pulled = run();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_TRUE(content_of(blob()) == model);
  EXPECT_LE(store.count("/signed") - before, 5);  // of 7 segments at least two were there
}

TEST_F(HubPull, a_wrong_hash_is_refused_and_nothing_stays) {
  on_store = [this](const FakeRequest& r) {
    std::string other = model;
    other[50'000] ^= 1;
    return FakeHub::file(r, other);
  };
  expect_error(run(), Code::kCorrupt, "SHA-256");
  EXPECT_FALSE(fs::exists(blob().string() + ".invar-part"));
  EXPECT_FALSE(fs::exists(blob().string() + ".invar-part.done"));
  // And is right the next time.
  on_store = [this](const FakeRequest& r) { return FakeHub::file(r, model); };
  EXPECT_TRUE(run().ok());
}

TEST_F(HubPull, a_damaged_unfinished_file_does_not_survive_its_hash) {
  fs::create_directories(repo() / "blobs");
  std::ofstream(blob().string() + ".invar-part") << std::string(model.size(), 'x');
  std::ofstream(blob().string() + ".invar-part.done") << std::string(7, '\1');
  EXPECT_EQ(run().status().code(), Code::kCorrupt);
  EXPECT_TRUE(run().ok());
  EXPECT_TRUE(content_of(blob()) == model);
}

TEST_F(HubPull, a_server_without_ranges_sends_the_whole_file_once) {
  on_store = [this](const FakeRequest& r) {
    FakeReply reply{200, {}, model, -1};
    if (r.fields.contains("range") && r.number == 1) reply.cut = 10;
    return reply;
  };
  const auto pulled = run();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_TRUE(content_of(blob()) == model);
}

TEST_F(HubPull, a_body_that_always_breaks_late_ends_after_six_attempts) {
  // Each attempt brings more than counts as progress where there are ranges; here it comes to nothing.
  on_hub = [this](const FakeRequest& r) {
    EXPECT_LE(r.number, 6);  // else for ever
    FakeReply reply{r.number <= 6 ? 200 : 404, {}, listing + std::string(200'000, ' '), -1};
    reply.cut = 150'000;
    return reply;
  };
  expect_error(run(), Code::kUnavailable, "(6 attempts)");
  EXPECT_EQ(hub.requests().size(), 6u);
  on_hub = [this](const FakeRequest& r) { return honest(r); };
  on_store = [this](const FakeRequest& r) {
    if (r.fields.contains("range")) return FakeReply{200, {}, model, -1};
    EXPECT_LE(r.number, 20);
    FakeReply reply{r.number <= 20 ? 200 : 404, {}, model, -1};
    reply.cut = 90'000;
    return reply;
  };
  expect_error(run(), Code::kUnavailable, "(6 attempts)");
}

TEST_F(HubPull, removal_waits_for_no_download_and_takes_nothing_from_under_it) {
  std::optional<Status> seen;
  on_store = [&](const FakeRequest& r) {
    const std::lock_guard lock(mutex);
    if (!seen) seen = HubLock::for_removal(cache, *parse_hub_name("o/n")).status();
    return FakeHub::file(r, model);
  };
  ASSERT_TRUE(run().ok());
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->code(), Code::kUnavailable);
  EXPECT_EQ(seen->message().find("o/n: is being downloaded; wait"), 0u) << seen->message();
  EXPECT_TRUE(HubLock::for_removal(cache, *parse_hub_name("o/n")).ok());
  // Between two files, and that of another tool on one file.
  {
    const auto pulling = HubLock::for_download(cache, *parse_hub_name("o/n"));
    EXPECT_TRUE(HubLock::for_download(cache, *parse_hub_name("o/n")).ok());
    EXPECT_FALSE(HubLock::for_removal(cache, *parse_hub_name("o/n")).ok());
  }
  const fs::path theirs = folder / "hub" / ".locks" / "models--o--n" / "etag.lock";
  std::ofstream(theirs) << "";
  const int fd = ::open(theirs.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_FALSE(HubLock::for_removal(cache, *parse_hub_name("o/n")).ok());
  ::close(fd);
  EXPECT_TRUE(HubLock::for_removal(cache, *parse_hub_name("o/n")).ok());
}

TEST_F(HubPull, a_list_too_large_for_any_repository_is_refused_in_bounded_memory) {
  std::string many;
  for (int i = 0; i < 50'000; ++i)
    many += fmt::format(R"({{"rfilename":"folder/file-{:06}.json","size":8,"blobId":"{}"}},)", i, kConfigId);
  listing = list(many + large(kModel, model));
  ASSERT_TRUE(run().ok());
  fs::remove_all(folder);
  for (const char* entry : {"{},", "[],", "0,"}) {
    std::string empty;
    empty.reserve(31 << 20);
    while (empty.size() < (size_t{30} << 20))
      empty += entry;
    listing = list(empty + "{}");
    expect_error(run(), Code::kCorrupt, "too large; check HF_ENDPOINT");
  }
  listing = list(small("a.json") + std::string(33 << 20, ' '));
  expect_error(run(), Code::kCorrupt, "check HF_ENDPOINT");
}

TEST_F(HubPull, ranges_that_are_not_what_was_asked_for_are_not_written) {
  // Each second answer is of another place, as of a confused proxy.
  on_store = [this](const FakeRequest& r) {
    FakeReply reply = FakeHub::file(r, model);
    if (r.number % 2 == 1) {
      reply.lines = {fmt::format("Content-Range: bytes 5-{}/100000", 4 + reply.body.size())};
      reply.body = model.substr(5, reply.body.size());
    }
    return reply;
  };
  ASSERT_TRUE(run().ok());
  EXPECT_TRUE(content_of(blob()) == model);
  fs::remove_all(folder);
  on_store = [this](const FakeRequest& r) {
    FakeReply reply = FakeHub::file(r, model);
    reply.lines = {"Content-Range: bytes 0-9/nothing"};
    return reply;
  };
  expect_error(run(), Code::kUnavailable, "another range");
  // The file has changed since the list was made.
  on_store = [this](const FakeRequest& r) { return FakeHub::file(r, model + "more"); };
  expect_error(run(), Code::kCorrupt, "100004 bytes");
  // More than was announced.
  on_store = [this](const FakeRequest& r) {
    FakeReply reply = FakeHub::file(r, model);
    reply.body += "more";
    return reply;
  };
  expect_error(run(), Code::kCorrupt, "more than 16384 bytes");
}

TEST_F(HubPull, waits_as_long_as_a_busy_server_says) {
  on_hub = [this](const FakeRequest& r) {
    return r.number == 1 && r.path.starts_with("/api/") ? FakeReply{429, {"Retry-After: 7"}, "slow down", -1}
                                                        : honest(r);
  };
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(run().ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::HasSubstr("status 429; trying again in 7.0 s"));
  EXPECT_EQ(waits, std::vector<double>{7});
  fs::remove_all(folder);
  waits.clear();
  on_hub = [](const FakeRequest&) { return FakeReply{429, {"Retry-After: 1"}, "", -1}; };
  expect_error(run(), Code::kUnavailable, "status 429 (6 attempts)");
  EXPECT_EQ(waits, std::vector<double>(5, 1));
  on_hub = [](const FakeRequest&) { return FakeReply{429, {"Retry-After: 86400"}, "", -1}; };
  expect_error(run(), Code::kUnavailable, "asks to wait 86400 s");
  // Without a time: longer and longer.
  waits.clear();
  on_hub = [](const FakeRequest&) { return FakeReply{503, {}, "", -1}; };
  expect_error(run(), Code::kUnavailable, "status 503");
  EXPECT_EQ(waits, (std::vector<double>{0.5, 1, 2, 4, 8}));
}

TEST_F(HubPull, refusals_say_what_to_do) {
  const auto answer = [this](int status, const std::string& code = "") {
    on_hub = [=](const FakeRequest&) { return FakeReply{status, {"X-Error-Code: " + code}, "{}", -1}; };
  };
  answer(401);
  expect_error(run(), Code::kNotFound, "the token in HF_TOKEN is not accepted");
  options.hub.token = "";
  expect_error(run(), Code::kNotFound, "set HF_TOKEN");
  answer(403, "GatedRepo");
  expect_error(run(), Code::kUnavailable, "access must be granted");
  answer(404, "RevisionNotFound");
  expect_error(run("o/n@v9"), Code::kNotFound, "o/n@v9: there is no such revision");
  answer(404);
  expect_error(run(), Code::kNotFound, "no such repository");
  answer(410);
  expect_error(run(), Code::kUnavailable, "status 410");
  EXPECT_TRUE(waits.empty());
  options.hub.token = "two words";
  expect_error(run(), Code::kInvalidArgument, "HF_TOKEN");
}

TEST_F(HubPull, redirects_in_circles_or_to_other_schemes_end) {
  on_hub = [this](const FakeRequest& r) { return FakeHub::redirect(hub.origin() + r.path); };
  expect_error(run(), Code::kCorrupt, "circles");
  on_hub = [](const FakeRequest&) { return FakeHub::redirect("file:///etc/passwd"); };
  expect_error(run(), Code::kCorrupt, "no http address");
}

TEST_F(HubPull, lists_of_hostile_hubs_are_refused) {
  for (const char* body : {"", "[]", "{}", R"({"sha":"../../x","siblings":[]})", R"({"sha":"main"})"}) {
    listing = body;
    expect_error(run(), Code::kCorrupt, "list of files");
  }
  for (const char* path :
       {"../x.gguf", "/x.gguf", "a/../../x.gguf", "a//x.gguf", "a\\\\x.gguf", "a\\nx.gguf", ""}) {
    listing = list(large(path, model));
    expect_error(run(), Code::kCorrupt, "leaves the repository");
  }
  listing = list(R"({"rfilename":"x.gguf","size":5,"lfs":{"sha256":"../../../../x"}})");
  expect_error(run(), Code::kCorrupt, "no checksum");
  listing = list(R"({"rfilename":"x.gguf","size":-5,"lfs":{"sha256":"x"}})");
  expect_error(run(), Code::kCorrupt, "no size");
  listing = list(fmt::format(R"({{"rfilename":"x.gguf","size":4000000000000,"lfs":{{"sha256":"{}"}}}})",
                             hex(sha256(model))));
  expect_error(run(), Code::kResourceExhausted, "make room");
  EXPECT_EQ(store.requests().size(), 0u);
}

TEST_F(HubPull, a_pinned_file_must_be_the_one_it_was) {
  options.sha256 = hex(sha256(std::string_view("another")));
  expect_error(run(), Code::kCorrupt, "another file than this name stands for");
  options.sha256 = hex(sha256(model));
  EXPECT_TRUE(run().ok());
}

TEST_F(HubPull, names_of_files_steer_no_terminal) {
  const std::string name =
      "m\xC2\x9B"
      "31m\xE2\x80\xAE.gguf";
  listing = list(large(name, model));
  ::testing::internal::CaptureStderr();
  const auto pulled = run();
  const std::string shown = ::testing::internal::GetCapturedStderr();
  ASSERT_TRUE(pulled.ok()) << pulled.status().message();
  EXPECT_NE(shown.find(R"(m\xc2\x9b31m\xe2\x80\xae.gguf: 100%)"), std::string::npos) << shown;
  EXPECT_EQ(shown.find('\x9B'), std::string::npos);
}

TEST_F(HubPull, removal_refuses_a_name_that_leads_elsewhere) {
  const fs::path victim = folder / "victim";
  fs::create_directories(victim / "snapshots");
  HubName foreign{"o", "n@x/../../victim", "", "main"};
  fs::create_directories(folder / "hub" / "models--o--n@x");
  for (const bool whole : {true, false}) {
    const auto plan = cache.plan_removal(foreign, whole);
    ASSERT_FALSE(plan.ok()) << plan->paths[0];
    EXPECT_EQ(plan.status().code(), Code::kInvalidArgument) << plan.status().message();
  }
}

TEST_F(HubPull, removal_does_not_follow_a_snapshot_to_another_place) {
  const fs::path victim = folder / "victim";
  fs::create_directories(victim);
  ASSERT_TRUE(run().ok());
  const std::string other = std::string(39, 'b') + "1";
  std::ofstream(victim / kModel) << "precious";
  std::ofstream(victim / "other-Q8_0.gguf") << "precious";
  fs::create_directory_symlink(victim, repo() / "snapshots" / other);
  const auto plan = cache.plan_removal(*parse_hub_name(fmt::format("o/n:Q8_0@{}", other)), false);
  ASSERT_FALSE(plan.ok());
  EXPECT_NE(plan.status().message().find("outside"), std::string::npos) << plan.status().message();
  // The link itself may go.
  const auto link = cache.plan_removal(*parse_hub_name("o/n@" + other), false);
  ASSERT_TRUE(link.ok()) << link.status().message();
  ASSERT_TRUE(HubCache::remove(*link).ok());
  EXPECT_TRUE(fs::exists(victim / kModel));
}

TEST_F(HubPull, removal_takes_what_nothing_else_needs) {
  const std::string second = bytes(500), commit2 = std::string(39, 'b') + "1";
  on_store = [&](const FakeRequest& r) {
    return FakeHub::file(r, r.path.find("second") == std::string::npos ? model : second);
  };
  on_hub = [&](const FakeRequest& r) {
    if (r.path.starts_with("/api/")) return FakeReply{200, {}, listing, -1};
    return FakeHub::redirect(store.origin() + (r.path.ends_with("-Q8_0.gguf") ? "/second" : "/first"));
  };
  ASSERT_TRUE(run().ok());
  listing = list(large(kModel, model) + "," + large("model-Q8_0.gguf", second), commit2);
  ASSERT_TRUE(run("o/n:Q8_0@v2").ok());
  ASSERT_TRUE(run("o/n:Q4_K_M@v2").ok());
  const auto repos = cache.repos();
  ASSERT_EQ(repos.size(), 1u);
  ASSERT_EQ(repos[0].snapshots.size(), 2u);
  EXPECT_EQ(repos[0].bytes, 100'500u);  // shared contents are there once
  EXPECT_EQ(repos[0].snapshots[1].revisions, std::vector<std::string>{"v2"});

  const auto shared = cache.plan_removal(*parse_hub_name("o/n:Q4_K_M@v2"), false);
  ASSERT_TRUE(shared.ok());
  EXPECT_EQ(shared->bytes, 0u);  // the other revision has the same contents
  const auto one = cache.plan_removal(*parse_hub_name("o/n:Q8_0@v2"), false);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->bytes, 500u);
  ASSERT_TRUE(HubCache::remove(*one).ok());
  EXPECT_FALSE(cache.find(*parse_hub_name("o/n:Q8_0@v2")).ok());
  EXPECT_TRUE(cache.find(*parse_hub_name("o/n@v2")).ok());
  const auto revision = cache.plan_removal(*parse_hub_name("o/n@v2"), false);
  ASSERT_TRUE(revision.ok());
  ASSERT_TRUE(HubCache::remove(*revision).ok());
  EXPECT_TRUE(content_of(*cache.find(*parse_hub_name("o/n"))) == model);
  ASSERT_TRUE(HubCache::remove(*cache.plan_removal(*parse_hub_name("o/n"), true)).ok());
  EXPECT_FALSE(fs::exists(repo()));
}

}  // namespace
}  // namespace invar
