// Faults at the system calls by which files change, for every process that carries this library in
// LD_PRELOAD: kill -9 before, in the middle of or after the n-th call, an error, or a power cut.
//
// Told by a control file (PREWARM_FAULTS) that all processes map, so that a test arms and disarms
// them while they run; its layout is that of `_Control` in injector.py. A power cut is a kill that
// first takes back what was never synced: file contents without fsync of the file, names without
// fsync of their directory. That is harsher than most file systems, and no harsher than POSIX.

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace {

enum Mode { OFF, TRACE, ARMED };
enum Action { KILL_BEFORE, KILL_AFTER, KILL_TORN, FAIL, CUT_BEFORE, CUT_AFTER };
enum Role { MAIN = 1, PACK = 2, CHILD = 4 };

struct Control {
  int32_t mode, action, error, left, times, fired, seen, roles, pid, track;
  char root[256];   // only paths below it count
  char op[16];      // empty: any
  char path[256];   // fnmatch pattern of the path as it is told, empty: any
  char saved[256];  // where a power cut's bookkeeping keeps names; outside root, same file system
  char trace[256];  // gets a line per call
  char told[512];   // what was hit
};

Control *control = nullptr;
int role = CHILD;
thread_local bool inside = false;
pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

template <typename F> F real(const char *name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void begin() {
  const char *path = getenv("PREWARM_FAULTS");
  if (!path) return;
  int fd = real<int (*)(const char *, int, ...)>("open64")(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  void *found = mmap(nullptr, sizeof(Control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (found == MAP_FAILED) return;
  char line[4096] = {0};
  int told = real<int (*)(const char *, int, ...)>("open64")("/proc/self/cmdline", O_RDONLY);
  ssize_t length = told < 0 ? 0 : read(told, line, sizeof line - 1);
  if (told >= 0) close(told);
  std::string words(line, length > 0 ? length : 0);
  if (words.find("prewarm.store.bundle_child") != std::string::npos) role = PACK;
  else if (words.find("prewarm.cli") != std::string::npos) role = MAIN;
  control = static_cast<Control *>(found);
}

// -- names

std::string link_of(const std::string &path) {
  char buffer[4096];
  ssize_t length = readlink(path.c_str(), buffer, sizeof buffer);
  return length < 0 ? std::string() : std::string(buffer, length);
}

std::string of_descriptor(int fd) { return link_of("/proc/self/fd/" + std::to_string(fd)); }

std::string full(int directory, const char *path) {
  if (!path) return "";
  if (path[0] == '/') return path;
  std::string base = directory == AT_FDCWD ? link_of("/proc/self/cwd") : of_descriptor(directory);
  return strcmp(path, ".") == 0 ? base : base + "/" + path;
}

bool below_root(const std::string &path) {
  size_t length = strlen(control->root);
  return length && path.compare(0, length, control->root) == 0 &&
         (path.size() == length || path[length] == '/');
}

bool is_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }

// The path below the root, with what is random or counted in it made the same each time.
std::string told_as(const std::string &path) {
  if (path.size() == strlen(control->root)) return ".";
  std::string rest = path.substr(strlen(control->root) + 1), out;
  size_t start = 0;
  while (start <= rest.size()) {
    size_t stop = rest.find('/', start);
    if (stop == std::string::npos) stop = rest.size();
    std::string part = rest.substr(start, stop - start);
    for (const char *prefix : {"build-", "proof-", "probe-", ".prewarm-", ".filling-", ".shim-"})
      if (part.compare(0, strlen(prefix), prefix) == 0) {
        size_t dot = part.rfind(".part");
        part = std::string(prefix) + "X" + (dot == std::string::npos ? "" : ".part");
      }
    if (part[0] == '#') part = "#";
    if (part.size() == 2 && is_hex(part[0]) && is_hex(part[1])) part = "XX";
    if (part.size() > 3 && part.compare(part.size() - 3, 3, ".py") == 0) part = "M.py";
    std::string plain;
    for (size_t i = 0; i < part.size();) {
      size_t j = i;
      while (j < part.size() && is_hex(part[j])) j++;
      if (j - i >= 8) { plain += 'X'; i = j; continue; }
      if (part[i] >= '0' && part[i] <= '9') {
        while (i < part.size() && part[i] >= '0' && part[i] <= '9') i++;
        plain += 'N';
        continue;
      }
      plain += part[i++];
    }
    out += (out.empty() ? "" : "/") + plain;
    if (plain == "work-dead-N" && stop < rest.size()) return out + "/*";
    start = stop + 1;
  }
  return out;
}

// -- what was never synced

typedef std::pair<dev_t, ino_t> Key;
enum Kind { BYTES, SIZE, MADE, MOVED, GONE, MADE_FOLDER, GONE_FOLDER };
struct Undo {
  Kind kind;
  Key key;               // of the file, or of the directory that holds the name
  std::string path, to;  // to: where a renamed one went
  std::string saved;     // bytes, or the name under which a replaced or removed file is kept
  off_t at;
};
std::vector<Undo> undone;
std::map<Key, int> kept;  // descriptors of files with unsynced bytes
int saved_count = 0;

bool key_of(const std::string &path, Key *key) {
  struct stat found;
  if (stat(path.c_str(), &found)) return false;
  *key = Key(found.st_dev, found.st_ino);
  return true;
}

std::string folder_of(const std::string &path) { return path.substr(0, path.rfind('/')); }

std::string save(const std::string &path) {
  std::string name = std::string(control->saved) + "/" + std::to_string(getpid()) + "-" +
                     std::to_string(saved_count++);
  typedef int (*Link)(int, const char *, int, const char *, int);
  return real<Link>("linkat")(AT_FDCWD, path.c_str(), AT_FDCWD, name.c_str(), 0) ? "" : name;
}

void note_name(Kind kind, const std::string &path, const std::string &to = "",
               const std::string &saved = "") {
  Key key;
  if (key_of(folder_of(to.empty() ? path : to), &key))
    undone.push_back({kind, key, path, to, saved, 0});
}

bool is_shared_memory(const std::string &path) {
  return path.size() > 4 && path.compare(path.size() - 4, 4, "-shm") == 0;
}

int keep(int fd, Key *key) {
  struct stat found;
  if (fstat(fd, &found) || !S_ISREG(found.st_mode)) return -1;
  *key = Key(found.st_dev, found.st_ino);
  auto there = kept.find(*key);
  if (there != kept.end()) return there->second;
  std::string again = "/proc/self/fd/" + std::to_string(fd);
  int own = real<int (*)(const char *, int, ...)>("open64")(again.c_str(), O_RDWR | O_CLOEXEC);
  if (own >= 0) kept[*key] = own;
  return own;
}

void note_bytes(int fd, off_t at, size_t count) {
  Key key;
  int own = keep(fd, &key);
  if (own < 0) return;
  struct stat found;
  fstat(own, &found);
  if (at + (off_t)count > found.st_size)
    undone.push_back({SIZE, key, "", "", "", found.st_size});
  if (at >= found.st_size) return;
  std::string before(std::min<off_t>(count, found.st_size - at), '\0');
  ssize_t got = pread(own, &before[0], before.size(), at);
  before.resize(got < 0 ? 0 : got);
  undone.push_back({BYTES, key, "", "", before, at});
}

void note_truncate(int fd, off_t size) {
  Key key;
  int own = keep(fd, &key);
  struct stat found;
  if (own < 0 || fstat(own, &found)) return;
  if (size < found.st_size) note_bytes(fd, size, found.st_size - size);
  undone.push_back({SIZE, key, "", "", "", found.st_size});
}

off_t place_of(int fd) {
  struct stat found;
  if (fcntl(fd, F_GETFL) & O_APPEND) return fstat(fd, &found) ? 0 : found.st_size;
  return lseek(fd, 0, SEEK_CUR);
}

void synced(int fd) {
  struct stat found;
  if (fstat(fd, &found)) return;
  Key key(found.st_dev, found.st_ino);
  std::vector<Undo> left;
  for (auto &one : undone)
    if (one.key != key) left.push_back(one);
  undone.swap(left);
  auto there = kept.find(key);
  if (there != kept.end()) { close(there->second); kept.erase(there); }
}

void power_cut() {
  inside = true;
  auto rename_ = real<int (*)(const char *, const char *)>("rename");
  auto unlink_ = real<int (*)(const char *)>("unlink");
  for (size_t i = undone.size(); i-- > 0;) {
    const Undo &one = undone[i];
    auto own = kept.find(one.key);
    switch (one.kind) {
      case BYTES:
        if (own != kept.end())
          (void)!real<ssize_t (*)(int, const void *, size_t, off_t)>("pwrite64")(
              own->second, one.saved.data(), one.saved.size(), one.at);
        break;
      case SIZE:
        if (own != kept.end())
          (void)!real<int (*)(int, off_t)>("ftruncate64")(own->second, one.at);
        break;
      case MADE: unlink_(one.path.c_str()); break;
      case MOVED:
        rename_(one.to.c_str(), one.path.c_str());
        if (!one.saved.empty()) rename_(one.saved.c_str(), one.to.c_str());
        break;
      case GONE: rename_(one.saved.c_str(), one.path.c_str()); break;
      case MADE_FOLDER:
        if (real<int (*)(const char *)>("rmdir")(one.path.c_str())) {
          std::string away = std::string(control->saved) + "/gone-" + std::to_string(getpid()) +
                             "-" + std::to_string(i);
          rename_(one.path.c_str(), away.c_str());
        }
        break;
      case GONE_FOLDER:
        real<int (*)(const char *, mode_t)>("mkdir")(one.path.c_str(), 0755);
        break;
    }
  }
}

void die() {
  kill(getpid(), SIGKILL);
  for (;;) pause();
}

// -- one call

struct Call {
  bool watched = false, hit = false, tracking = false;
  int action = -1;

  Call(const char *op, const std::string &path) {
    if (!control || inside || control->mode == OFF || !below_root(path)) return;
    inside = watched = true;
    tracking = control->track && role != CHILD && !is_shared_memory(path);
    if (tracking) pthread_mutex_lock(&lock);
    if (!(control->roles & role)) return;
    std::string told = told_as(path);
    if (control->op[0] && strcmp(control->op, op)) return;
    if (control->path[0] && fnmatch(control->path, told.c_str(), 0)) return;
    __atomic_fetch_add(&control->seen, 1, __ATOMIC_SEQ_CST);
    if (control->mode == TRACE) { trace(op, told); return; }
    if (__atomic_fetch_sub(&control->left, 1, __ATOMIC_SEQ_CST) > 0) return;
    if (__atomic_fetch_sub(&control->times, 1, __ATOMIC_SEQ_CST) <= 0) return;
    hit = true;
    action = control->action;
    snprintf(control->told, sizeof control->told, "%d %s %s", role, op, told.c_str());
    control->pid = getpid();
    __atomic_fetch_add(&control->fired, 1, __ATOMIC_SEQ_CST);
    if (action == CUT_BEFORE) power_cut();
    if (action == KILL_BEFORE || action == CUT_BEFORE) die();
  }

  bool fails() { if (hit && action == FAIL) { errno = control->error; return true; } return false; }
  bool torn() const { return hit && action == KILL_TORN; }

  template <typename T> T done(T result) {
    int before = errno;
    if (hit && action == CUT_AFTER) power_cut();
    if (hit && (action == KILL_AFTER || action == CUT_AFTER || action == KILL_TORN)) die();
    errno = before;
    return result;
  }

  ~Call() {
    if (!watched) return;
    int before = errno;
    if (tracking) pthread_mutex_unlock(&lock);
    inside = false;
    errno = before;
  }

  static void trace(const char *op, const std::string &told) {
    std::string line = std::to_string(role) + " " + op + " " + told + "\n";
    int fd = real<int (*)(const char *, int, ...)>("open64")(
        control->trace, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return;
    (void)!real<ssize_t (*)(int, const void *, size_t)>("write")(fd, line.data(), line.size());
    close(fd);
  }
};

bool active() { return control && !inside && control->mode != OFF; }

int opened(const char *name, int directory, const char *path, int flags, mode_t mode) {
  auto call_real = [&] {
    if (strncmp(name, "openat", 6) == 0)
      return real<int (*)(int, const char *, int, ...)>(name)(directory, path, flags, mode);
    return real<int (*)(const char *, int, ...)>(name)(path, flags, mode);
  };
  bool writes = flags & (O_CREAT | O_TRUNC | O_WRONLY | O_RDWR);
  if (!active() || !writes) return call_real();
  std::string where = full(directory, path);
  bool unnamed = (flags & O_TMPFILE) == O_TMPFILE;
  Call call("open", unnamed ? where + "/#" : where);
  if (call.fails()) return -1;
  struct stat found;
  bool there = stat(where.c_str(), &found) == 0;
  if (call.tracking && there && !unnamed && (flags & O_TRUNC) && found.st_size) {
    int own = real<int (*)(const char *, int, ...)>("open64")(where.c_str(), O_RDWR | O_CLOEXEC);
    if (own >= 0) { note_truncate(own, 0); close(own); }
  }
  int fd = call_real();
  if (call.tracking && fd >= 0 && !there && !unnamed) note_name(MADE, where);
  return call.done(fd);
}

template <typename F> ssize_t wrote(int fd, off_t at, size_t count, F write_some) {
  if (!active()) return write_some(count);
  Call call("write", of_descriptor(fd));
  if (call.fails()) return -1;
  if (call.tracking) note_bytes(fd, at < 0 ? place_of(fd) : at, count);
  return call.done(write_some(call.torn() && count > 1 ? count / 2 : count));
}

// Half of what is asked for may be all that there is.
size_t there_is(int fd, size_t count) {
  struct stat found;
  if (!active() || fstat(fd, &found) || !S_ISREG(found.st_mode)) return count;
  return std::min<size_t>(count, found.st_size);
}

int flushed(const char *name, int fd) {
  if (!active()) return real<int (*)(int)>(name)(fd);
  Call call("fsync", of_descriptor(fd));
  if (call.fails()) return -1;
  // What the test needs is the order, not the platter.
  if (call.tracking) synced(fd);
  return call.done(0);
}

int truncated(const char *name, int fd, off_t size) {
  if (!active()) return real<int (*)(int, off_t)>(name)(fd, size);
  Call call("truncate", of_descriptor(fd));
  if (call.fails()) return -1;
  if (call.tracking) note_truncate(fd, size);
  return call.done(real<int (*)(int, off_t)>(name)(fd, size));
}

template <typename F> int renamed(int from_at, const char *from, int to_at, const char *to, F go) {
  if (!active()) return go();
  std::string before = full(from_at, from), after = full(to_at, to);
  Call call("rename", after);
  if (call.fails()) return -1;
  struct stat found;
  bool there = call.tracking && lstat(after.c_str(), &found) == 0;
  std::string saved = there ? save(after) : "";
  int result = go();
  if (call.tracking && result == 0) note_name(MOVED, before, after, saved);
  return call.done(result);
}

template <typename F> int unlinked(const std::string &path, bool folder, F go) {
  Call call(folder ? "rmdir" : "unlink", path);
  if (call.fails()) return -1;
  std::string saved = call.tracking && !folder ? save(path) : "";
  int result = go();
  if (call.tracking && result == 0)
    note_name(folder ? GONE_FOLDER : GONE, path, "", saved);
  return call.done(result);
}

template <typename F> int made(const char *op, const std::string &path, Kind kind, F go) {
  Call call(op, path);
  if (call.fails()) return -1;
  int result = go();
  if (call.tracking && result == 0) note_name(kind, path);
  return call.done(result);
}

template <typename F> int changed(const char *op, const std::string &path, F go) {
  Call call(op, path);
  return call.fails() ? -1 : call.done(go());
}

mode_t mode_of(int flags, va_list rest) {
  bool has = (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
  return has ? va_arg(rest, mode_t) : 0;
}

}  // namespace

#define WITH_MODE                     \
  va_list rest;                       \
  va_start(rest, flags);              \
  mode_t mode = mode_of(flags, rest); \
  va_end(rest)

extern "C" {

int open(const char *path, int flags, ...) {
  WITH_MODE;
  return opened("open", AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
  WITH_MODE;
  return opened("open64", AT_FDCWD, path, flags, mode);
}
int openat(int at, const char *path, int flags, ...) {
  WITH_MODE;
  return opened("openat", at, path, flags, mode);
}
int openat64(int at, const char *path, int flags, ...) {
  WITH_MODE;
  return opened("openat64", at, path, flags, mode);
}

ssize_t write(int fd, const void *data, size_t count) {
  return wrote(fd, -1, count, [&](size_t some) {
    return real<ssize_t (*)(int, const void *, size_t)>("write")(fd, data, some);
  });
}
ssize_t pwrite(int fd, const void *data, size_t count, off_t at) {
  return wrote(fd, at, count, [&](size_t some) {
    return real<ssize_t (*)(int, const void *, size_t, off_t)>("pwrite")(fd, data, some, at);
  });
}
ssize_t pwrite64(int fd, const void *data, size_t count, off64_t at) {
  return wrote(fd, at, count, [&](size_t some) {
    return real<ssize_t (*)(int, const void *, size_t, off64_t)>("pwrite64")(fd, data, some, at);
  });
}
ssize_t sendfile64(int out, int in, off64_t *at, size_t count) {
  count = there_is(in, count);
  return wrote(out, -1, count, [&](size_t some) {
    return real<ssize_t (*)(int, int, off64_t *, size_t)>("sendfile64")(out, in, at, some);
  });
}
ssize_t sendfile(int out, int in, off_t *at, size_t count) {
  count = there_is(in, count);
  return wrote(out, -1, count, [&](size_t some) {
    return real<ssize_t (*)(int, int, off_t *, size_t)>("sendfile")(out, in, at, some);
  });
}

int fsync(int fd) { return flushed("fsync", fd); }
int fdatasync(int fd) { return flushed("fdatasync", fd); }
int ftruncate(int fd, off_t size) { return truncated("ftruncate", fd, size); }
int ftruncate64(int fd, off64_t size) { return truncated("ftruncate64", fd, size); }

int rename(const char *from, const char *to) {
  return renamed(AT_FDCWD, from, AT_FDCWD, to,
                 [&] { return real<int (*)(const char *, const char *)>("rename")(from, to); });
}
int renameat(int from_at, const char *from, int to_at, const char *to) {
  return renamed(from_at, from, to_at, to, [&] {
    return real<int (*)(int, const char *, int, const char *)>("renameat")(from_at, from, to_at,
                                                                           to);
  });
}

int unlink(const char *path) {
  auto go = [&] { return real<int (*)(const char *)>("unlink")(path); };
  return active() ? unlinked(full(AT_FDCWD, path), false, go) : go();
}
int rmdir(const char *path) {
  auto go = [&] { return real<int (*)(const char *)>("rmdir")(path); };
  return active() ? unlinked(full(AT_FDCWD, path), true, go) : go();
}
int unlinkat(int at, const char *path, int flags) {
  auto go = [&] { return real<int (*)(int, const char *, int)>("unlinkat")(at, path, flags); };
  return active() ? unlinked(full(at, path), flags & AT_REMOVEDIR, go) : go();
}

int mkdir(const char *path, mode_t mode) {
  auto go = [&] { return real<int (*)(const char *, mode_t)>("mkdir")(path, mode); };
  return active() ? made("mkdir", full(AT_FDCWD, path), MADE_FOLDER, go) : go();
}
int mkdirat(int at, const char *path, mode_t mode) {
  auto go = [&] { return real<int (*)(int, const char *, mode_t)>("mkdirat")(at, path, mode); };
  return active() ? made("mkdir", full(at, path), MADE_FOLDER, go) : go();
}
int symlink(const char *target, const char *path) {
  auto go = [&] { return real<int (*)(const char *, const char *)>("symlink")(target, path); };
  return active() ? made("symlink", full(AT_FDCWD, path), MADE, go) : go();
}
int symlinkat(const char *target, int at, const char *path) {
  auto go = [&] { return real<int (*)(const char *, int, const char *)>("symlinkat")(target, at, path); };
  return active() ? made("symlink", full(at, path), MADE, go) : go();
}
int linkat(int from_at, const char *from, int at, const char *path, int flags) {
  auto go = [&] {
    typedef int (*Link)(int, const char *, int, const char *, int);
    return real<Link>("linkat")(from_at, from, at, path, flags);
  };
  return active() ? made("link", full(at, path), MADE, go) : go();
}

int fchmod(int fd, mode_t mode) {
  auto go = [&] { return real<int (*)(int, mode_t)>("fchmod")(fd, mode); };
  return active() ? changed("chmod", of_descriptor(fd), go) : go();
}
int chmod(const char *path, mode_t mode) {
  auto go = [&] { return real<int (*)(const char *, mode_t)>("chmod")(path, mode); };
  return active() ? changed("chmod", full(AT_FDCWD, path), go) : go();
}
int utimensat(int at, const char *path, const struct timespec times[2], int flags) {
  typedef int (*Utime)(int, const char *, const struct timespec[2], int);
  auto go = [&] { return real<Utime>("utimensat")(at, path, times, flags); };
  return active() && path ? changed("utime", full(at, path), go) : go();
}

}  // extern "C"
