#pragma once
// Receipts on the client's side: reading one, the request that has its answer made again, and what of two
// receipts differs. Free functions; errors say what is missing in which text.

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace invar {

struct Receipt {
  std::string model_digest, numerics, kv;
  std::string seed;  // a number, as JSON has it
  std::string output_digest;
};

// From the object itself, a body or a frame that has it as "invar", or the frames of a stream, of which the
// last one with a receipt counts.
Result<Receipt> read_receipt(std::string_view text);

struct ReceiptDifference {
  std::string field, ours, theirs;
};
// In the order of cause: what computes, what it was asked, what came out.
std::optional<ReceiptDifference> first_difference(const Receipt& ours, const Receipt& theirs);

struct RepeatedRequest {
  std::string target;  // path of the endpoint
  std::string body;    // with the receipt's seed, and without stream
  // The seed that the request asks for itself, if it is another one than the receipt's.
  std::optional<std::string> other_seed;
};
// endpoint: "chat", "completions" or "": as the fields of the request say.
Result<RepeatedRequest> repeated_request(std::string_view request, const std::string& endpoint,
                                         const Receipt& receipt);

// The body of a logged request with a seed, if it is a JSON object and has none; else as it was.
std::string with_seed(const std::string& body, const std::string& seed);
// Whether a body is a JSON object that has a seed, or a temperature of 0: what is generated does not depend
// on a random seed.
bool is_determined(const std::string& body);

}  // namespace invar
