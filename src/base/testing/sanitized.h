#pragma once
// For tests: INVAR_SANITIZED is 1 under AddressSanitizer or ThreadSanitizer, which replace operator new and
// take address space of their own; else 0.

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define INVAR_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define INVAR_SANITIZED 1
#endif
#endif
#ifndef INVAR_SANITIZED
#define INVAR_SANITIZED 0
#endif
