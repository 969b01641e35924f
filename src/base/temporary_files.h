#pragma once
// Unfinished files of this process: written under a temporary name, renamed when they are whole. A signal
// that ends the process takes them along. All functions may be called from any thread, none from a signal
// handler.

#include <sys/types.h>

#include <string>

namespace invar {

// As open(2): a descriptor, or -1 with errno. The file is removed by exit_without_temporaries() until
// forget_temporary() is called, which follows its rename or removal.
int open_temporary(const std::string& path, int flags, mode_t mode);
// The same for what is made in another way, once it is there: a socket, say.
void note_temporary(const std::string& path);
void forget_temporary(const std::string& path);

// Removes what is unfinished and ends the process at once, as _exit does.
[[noreturn]] void exit_without_temporaries(int code);

}  // namespace invar
