"""Headers of the C++ library that host code includes and that NVRTC lacks: vector, iostream, string, chrono's clocks."""

from __future__ import annotations

from pathlib import Path

RUNTIME = "runtime.h"  # included before a program's first line
_VECTOR = """#pragma once
namespace std {
template <class T> class vector {
  T* data_ = nullptr;
  size_t size_ = 0, capacity_ = 0;
 public:
  typedef T value_type; typedef T* iterator; typedef const T* const_iterator;
  vector() {}
  explicit vector(size_t n, const T& value = T()) { resize(n, value); }
  vector(const vector& other) { for (const T& value : other) push_back(value); }
  vector(vector&& other) : data_(other.data_), size_(other.size_), capacity_(other.capacity_) { other.data_ = nullptr; other.size_ = other.capacity_ = 0; }
  template <size_t N> vector(const T (&values)[N]) { for (const T& value : values) push_back(value); }
  template <class I> vector(I first, I last) { for (; first != last; ++first) push_back(*first); }
  ~vector() { delete[] data_; }
  vector& operator=(const vector& other) { if (this != &other) { clear(); for (const T& value : other) push_back(value); } return *this; }
  void reserve(size_t n) {
    if (n <= capacity_) return;
    T* more = new T[n];
    for (size_t i = 0; i < size_; ++i) more[i] = data_[i];
    delete[] data_;
    data_ = more; capacity_ = n;
  }
  void resize(size_t n, const T& value = T()) { reserve(n); for (size_t i = size_; i < n; ++i) data_[i] = value; size_ = n; }
  void assign(size_t n, const T& value) { clear(); resize(n, value); }
  void push_back(const T& value) { if (size_ == capacity_) reserve(capacity_ ? 2 * capacity_ : 8); data_[size_++] = value; }
  template <class... A> void emplace_back(A... values) { push_back(T(values...)); }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return !size_; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& front() { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& at(size_t i) { assert(i < size_); return data_[i]; }
};
}
"""
_STRING = """#pragma once
#include <vector>
namespace std {
class string {
  vector<char> text_;
 public:
  string(const char* text = "") { while (*text) text_.push_back(*text++); text_.push_back(0); }
  const char* c_str() const { return text_.data(); }
  size_t size() const { return text_.size() - 1; }
  size_t length() const { return size(); }
  bool empty() const { return !size(); }
  char operator[](size_t i) const { return text_[i]; }
  string& operator+=(const string& other) { text_.pop_back(); for (const char* c = other.c_str(); *c; ++c) text_.push_back(*c); text_.push_back(0); return *this; }
  string operator+(const string& other) const { string sum(*this); sum += other; return sum; }
  bool operator==(const string& other) const { return strcmp(c_str(), other.c_str()) == 0; }
};
inline string to_string(int value) { char text[16]; int at = 15; bool minus = value < 0; unsigned rest = minus ? -value : value; text[at] = 0; do { text[--at] = '0' + rest % 10; rest /= 10; } while (rest); if (minus) text[--at] = '-'; return string(text + at); }
}
"""
_IOSTREAM = """#pragma once
#include <string>
namespace std {
struct host_precision { int digits; };
struct host_width { int columns; };
struct host_fixed {};
struct ostream { int digits = 6, columns = 0; bool fixed = false; };
__device__ ostream cout, cerr;
inline ostream& operator<<(ostream& o, const char* text) { printf("%*s", o.columns, text); o.columns = 0; return o; }
inline ostream& operator<<(ostream& o, const string& text) { return o << text.c_str(); }
inline ostream& operator<<(ostream& o, char value) { printf("%c", value); return o; }
inline ostream& operator<<(ostream& o, bool value) { printf("%*d", o.columns, (int)value); o.columns = 0; return o; }
inline ostream& operator<<(ostream& o, long long value) { printf("%*lld", o.columns, value); o.columns = 0; return o; }
inline ostream& operator<<(ostream& o, unsigned long long value) { printf("%*llu", o.columns, value); o.columns = 0; return o; }
inline ostream& operator<<(ostream& o, int value) { return o << (long long)value; }
inline ostream& operator<<(ostream& o, long value) { return o << (long long)value; }
inline ostream& operator<<(ostream& o, unsigned value) { return o << (unsigned long long)value; }
inline ostream& operator<<(ostream& o, unsigned long value) { return o << (unsigned long long)value; }
inline ostream& operator<<(ostream& o, double value) {
  if (o.fixed) printf("%*.*f", o.columns, o.digits, value); else printf("%*.*g", o.columns, o.digits, value);
  o.columns = 0; return o;
}
inline ostream& operator<<(ostream& o, float value) { return o << (double)value; }
inline ostream& operator<<(ostream& o, const void* value) { printf("%p", value); return o; }
inline ostream& operator<<(ostream& o, host_precision p) { o.digits = p.digits; return o; }
inline ostream& operator<<(ostream& o, host_width w) { o.columns = w.columns; return o; }
inline ostream& operator<<(ostream& o, ostream& (*change)(ostream&)) { return change(o); }
inline ostream& endl(ostream& o) { printf("\\n"); return o; }
inline ostream& flush(ostream& o) { return o; }
inline ostream& fixed(ostream& o) { o.fixed = true; return o; }
inline host_precision setprecision(int digits) { return {digits}; }
inline host_width setw(int columns) { return {columns}; }
}
"""


def headers() -> dict[str, str]:
    """Returns the headers' texts by name."""
    runtime = Path(__file__).with_name(RUNTIME).read_text(encoding="utf-8")
    nothing = "#pragma once\n"
    return {
        RUNTIME: runtime,
        "cuda_runtime.h": nothing,
        "cuda_runtime_api.h": nothing,
        "cuda.h": nothing,
        "device_launch_parameters.h": nothing,
        "vector": _VECTOR,
        "string": _STRING,
        "iostream": _IOSTREAM,
        "iomanip": "#pragma once\n#include <iostream>\n",
    }
