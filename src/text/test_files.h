#pragma once
// Test data for the tests of text/: files of the repository, and tokenizer files that
// test/fetch_tokenizers.sh put into the cache. A missing file fails the test.

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace invar::text {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << "cannot read " << path;
  std::ostringstream bytes;
  bytes << in.rdbuf();
  return std::move(bytes).str();
}

inline std::string test_data(const std::string& name) {
  return read_file(std::string(INVAR_TEST_DATA) + "/" + name);
}

inline std::string test_cache_path(const std::string& name) {
  std::string folder;
  if (const char* set = std::getenv("INVAR_TEST_CACHE")) {
    folder = set;
  } else if (const char* xdg = std::getenv("XDG_CACHE_HOME")) {
    folder = std::string(xdg) + "/invar/test";
  } else if (const char* home = std::getenv("HOME")) {
    folder = std::string(home) + "/.cache/invar/test";
  }
  return folder + "/" + name;
}

inline std::string cached_file(const std::string& name) {
  const std::string path = test_cache_path(name);
  std::ifstream probe(path, std::ios::binary);
  EXPECT_TRUE(probe.good()) << path << " is missing: run test/fetch_tokenizers.sh";
  return probe.good() ? read_file(path) : std::string();
}

inline std::string as_string(const boost::json::value& v) {
  return std::string(v.as_string().data(), v.as_string().size());
}

}  // namespace invar::text
