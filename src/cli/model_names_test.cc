#include "cli/model_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

namespace invar {
namespace {

namespace fs = std::filesystem;

TEST(ModelNames, a_link_to_nowhere_is_named_as_such) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("model-names-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  fs::create_symlink("gone.gguf", folder / "dangling.gguf");
  fs::create_symlink("loop.gguf", folder / "loop.gguf");
  for (const char* link : {"dangling.gguf", "loop.gguf"}) {
    const auto found = find_model(folder / link, HubCache(""));
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.status().code(), Code::kNotFound);
    EXPECT_NE(found.status().message().find(link), std::string::npos) << found.status().message();
    EXPECT_NE(found.status().message().find("is a link to"), std::string::npos) << found.status().message();
    EXPECT_NE(found.status().message().find("mend the link"), std::string::npos) << found.status().message();
  }
  // What is no link and no name comes back: whoever opens it says what is wrong.
  EXPECT_EQ(*find_model(folder / "none.gguf", HubCache("")), (folder / "none.gguf").string());
  fs::remove_all(folder);
}

}  // namespace
}  // namespace invar
