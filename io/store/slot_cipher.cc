#include "io/store/slot_cipher.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "io/os/errno.h"
#include "io/os/sync.h"

namespace spillway::io {
namespace {

constexpr size_t kKeyBytes = 64;  // two keys of AES-256

// OpenSSL frees its objects when the process ends, in an exit handler that may come before ours. It calls
// back before that (OPENSSL_atexit): nothing is begun from then on, and calls under way are waited for. There
// is one such object in the process, as OpenSSL is.
struct Uses {
  os::Mutex mu{os::LockRank::kEngine};
  os::CondVar none_left;
  int under_way ABSL_GUARDED_BY(mu) = 0;
  bool ended ABSL_GUARDED_BY(mu) = false;

  bool Begin() {
    const os::MutexLock lock(&mu);
    under_way += ended ? 0 : 1;
    return !ended;
  }
  void End() {
    const os::MutexLock lock(&mu);
    if (--under_way == 0) none_left.NotifyAll();
  }
  void EndAll() {
    const os::MutexLock lock(&mu);
    ended = true;
    while (under_way > 0) none_left.Wait(&mu);
  }
};

Uses& TheUses() {
  static Uses* const uses = new Uses;  // lives longer than exit handlers
  return *uses;
}

}  // namespace

// The OpenSSL functions that are used, as <openssl/evp.h> and <openssl/crypto.h> of 3.0 declare them, so the
// build needs no headers of OpenSSL.
struct SlotCipher::OpenSsl {
  int (*at_exit)(void (*handler)());
  void* (*fetch)(void* context, const char* algorithm, const char* properties);
  void (*free_algorithm)(void* algorithm);
  void* (*new_context)();
  void (*free_context)(void* context);
  int (*init)(void* context, const void* algorithm, const unsigned char* key, const unsigned char* iv,
              int encrypt, const void* params);
  int (*update)(void* context, unsigned char* to, int* to_bytes, const unsigned char* from, int bytes);
};

// The key has a page of its own: locked, in no core file, and empty in a forked child.
class SlotCipher::Key {
 public:
  Key() = default;
  ~Key() {
    if (memory_ == nullptr) return;
    explicit_bzero(memory_, kKeyBytes);
    munmap(memory_, page_);
  }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;

  absl::Status Make() {
    void* const memory = mmap(nullptr, page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return os::StatusFromErrno(errno, "memory for the key");
    memory_ = static_cast<unsigned char*>(memory);
    if (mlock(memory_, page_) != 0)
      return absl::FailedPreconditionError("the key's memory cannot be locked (ulimit -l): " +
                                           std::string(std::strerror(errno)));
    if (madvise(memory_, page_, MADV_DONTDUMP) != 0 || madvise(memory_, page_, MADV_WIPEONFORK) != 0)
      return os::StatusFromErrno(errno, "keeping the key out of core files and child processes");
    for (size_t have = 0; have < kKeyBytes;) {
      const ssize_t more = getrandom(memory_ + have, kKeyBytes - have, 0);
      if (more < 0 && errno != EINTR) return os::StatusFromErrno(errno, "random bytes for the key");
      have += more > 0 ? static_cast<size_t>(more) : 0;
    }
    return absl::OkStatus();
  }
  const unsigned char* bytes() const { return memory_; }

 private:
  const size_t page_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  unsigned char* memory_ = nullptr;
};

SlotCipher::SlotCipher(std::unique_ptr<const OpenSsl> openssl, std::unique_ptr<const Key> key)
    : openssl_(std::move(openssl)), key_(std::move(key)) {}

absl::StatusOr<std::unique_ptr<SlotCipher>> SlotCipher::Create(const std::string& library) {
  // The library is never closed, because others may use it and its exit handler lies in it.
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return absl::UnavailableError(dlerror());
  auto openssl = std::make_unique<OpenSsl>();
  bool complete = true;
  const auto find = [&](const char* name, auto* function) {
    *reinterpret_cast<void**>(function) = dlsym(handle, name);
    complete = complete && *function != nullptr;
  };
  find("OPENSSL_atexit", &openssl->at_exit);
  find("EVP_CIPHER_fetch", &openssl->fetch);
  find("EVP_CIPHER_free", &openssl->free_algorithm);
  find("EVP_CIPHER_CTX_new", &openssl->new_context);
  find("EVP_CIPHER_CTX_free", &openssl->free_context);
  find("EVP_CipherInit_ex2", &openssl->init);
  find("EVP_CipherUpdate", &openssl->update);
  if (!complete) return absl::UnavailableError(library + " is not OpenSSL 3");
  auto key = std::make_unique<Key>();
  SPILLWAY_RETURN_IF_ERROR(key->Make());
  static const bool noted = openssl->at_exit([] { TheUses().EndAll(); }) == 1;
  std::unique_ptr<SlotCipher> cipher(new SlotCipher(std::move(openssl), std::move(key)));
  cipher->algorithm_ = noted ? cipher->openssl_->fetch(nullptr, "AES-256-XTS", nullptr) : nullptr;
  if (cipher->algorithm_ == nullptr) return absl::UnavailableError(library + " gives no AES-256-XTS");
  return cipher;
}

SlotCipher::~SlotCipher() {
  if (algorithm_ == nullptr || !TheUses().Begin()) return;
  openssl_->free_algorithm(algorithm_);
  TheUses().End();
}

absl::Status SlotCipher::Encrypt(const Use& use, const void* plain, uint32_t bytes, void* cipher) const {
  return Convert(/*encrypt=*/true, use, plain, bytes, cipher);
}

absl::Status SlotCipher::Decrypt(const Use& use, const void* cipher, uint32_t bytes, void* plain) const {
  return Convert(/*encrypt=*/false, use, cipher, bytes, plain);
}

// Each call has a context of its own, which costs little beside a slot. OpenSSL clears the round keys in it.
absl::Status SlotCipher::Convert(bool encrypt, const Use& use, const void* from, uint32_t bytes,
                                 void* to) const {
  if (!TheUses().Begin()) return absl::CancelledError("OpenSSL has ended with the process");
  std::array<unsigned char, 16> tweak{};
  std::memcpy(tweak.data(), &use.directory, sizeof(use.directory));
  std::memcpy(tweak.data() + 4, &use.index, sizeof(use.index));
  std::memcpy(tweak.data() + 8, &use.generation, sizeof(use.generation));
  void* const context = openssl_->new_context();
  int converted = 0;
  const bool done =
      context != nullptr &&
      openssl_->init(context, algorithm_, key_->bytes(), tweak.data(), encrypt ? 1 : 0, nullptr) == 1 &&
      openssl_->update(context, static_cast<unsigned char*>(to), &converted,
                       static_cast<const unsigned char*>(from), static_cast<int>(bytes)) == 1 &&
      converted == static_cast<int>(bytes);
  openssl_->free_context(context);
  TheUses().End();
  return done ? absl::OkStatus() : absl::UnavailableError("OpenSSL failed to convert a slot");
}

}  // namespace spillway::io
