-- Drives CodeCompanion in a headless Neovim: sends each prompt in a chat, answers every permission request
-- with a key, and writes what the chat buffer shows to a file.
--
--   nvim --headless --clean -l drive.lua PLENARY CODECOMPANION AGENT SCREEN KEY PROMPT...
--
-- KEY is the action of CodeCompanion's shared keymaps: `accept_change` or `reject_change`.

local plenary, codecompanion, agent, screen, answer = unpack(arg, 1, 5)
local prompts = vim.list_slice(arg, 6)
local limit_ms = 60 * 1000

-- Debian's LuaJIT calls the main program a coroutine, as Lua 5.2 does. CodeCompanion would then suspend it
-- while it waits for the agent.
local running = coroutine.running
coroutine.running = function()
  local current, is_main = running()
  if not is_main then
    return current
  end
end

vim.opt.runtimepath:append({ plenary, codecompanion })
vim.o.columns, vim.o.lines, vim.o.swapfile = 120, 60, false
vim.cmd("runtime plugin/plenary.vim")
vim.cmd("runtime plugin/codecompanion.lua")

require("codecompanion").setup({
  adapters = {
    acp = {
      turnwright = function()
        return require("codecompanion.adapters").extend("opencode", {
          name = "turnwright",
          formatted_name = "turnwright",
          commands = { default = { agent } },
        })
      end,
    },
  },
  interactions = { chat = { adapter = "turnwright" } },
})

local chat = require("codecompanion").chat()

local function shown()
  return table.concat(vim.api.nvim_buf_get_lines(chat.bufnr, 0, -1, false), "\n")
end

local function fail(why)
  io.stderr:write(why, "\n\n", shown(), "\n")
  os.exit(1)
end

-- A permission request sets keymaps in the chat buffer, which act like the keys that the user presses.
local keymaps = require("codecompanion.config").interactions.shared.keymaps
local key = keymaps[answer].modes.n
vim.api.nvim_create_autocmd("User", {
  pattern = "CodeCompanionToolApprovalRequested",
  callback = function()
    vim.schedule(function()
      vim.api.nvim_buf_call(chat.bufnr, function()
        vim.fn.maparg(key, "n", false, true).callback()
      end)
    end)
  end,
})

-- The chat connects in the background. A prompt that is sent before that is sometimes sent without its text.
local function is_connected()
  return chat.acp_connection ~= nil and chat.acp_connection:is_connected()
end
if not vim.wait(limit_ms, is_connected, 50) then
  fail("the agent is not connected")
end

for _, prompt in ipairs(prompts) do
  local is_done = false
  vim.api.nvim_create_autocmd("User", {
    pattern = "CodeCompanionChatDone",
    once = true,
    callback = function()
      is_done = true
    end,
  })
  chat:add_buf_message({ role = "user", content = prompt })
  chat:submit()
  if not vim.wait(limit_ms, function() return is_done end, 50) then
    fail("the chat did not answer: " .. prompt)
  end
end

vim.fn.writefile(vim.split(shown(), "\n"), screen)
os.exit(0)
