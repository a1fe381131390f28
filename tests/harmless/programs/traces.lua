-- LuaJIT: traces of machine code without unwind tables, errors that cross them, coroutines.
local function work(n)
  local sum = 0
  for i = 1, n do
    sum = sum + i % 7
  end
  return sum
end
print("loop: " .. work(100000000))

local caught = 0
for i = 1, 100000 do
  local ok = pcall(function() error("thrown") end)
  if not ok then caught = caught + 1 end
end
print("errors: " .. caught)

local total = 0
for _ = 1, 2000 do
  local numbers = coroutine.wrap(function()
    for i = 1, 100 do coroutine.yield(i) end
  end)
  for i in numbers do total = total + i end
end
print("coroutines: " .. total)

local ffi = require("ffi")
ffi.cdef("int usleep(unsigned); int getpid(void);")
for _ = 1, 100 do ffi.C.usleep(100) end
print("calls: " .. tostring(ffi.C.getpid() > 0))
os.exit(7)
