;;; drive.el --- Drives agent-shell in a batch Emacs  -*- lexical-binding: t; -*-

;; Starts a session as docs/editors/emacs.md says, types each prompt, answers every permission request with keys,
;; and prints what the shell's buffer shows: at the start, at each request, after each prompt, and when the
;; session is continued.
;;
;;   emacs -Q --batch -l drive.el PAGE PLUGINS BIN KEYS PROMPT...
;;
;; PAGE is docs/editors/emacs.md. PLUGINS is the folder of agent-shell, acp.el and shell-maker, BIN that of turnwright. KEYS are those that
;; agent-shell shows beside the option.

(defconst drive-limit 60 "The most seconds until the shell answers.")

(defvar drive-shell nil "The shell's buffer.")

(defvar drive-events nil "The names of the shell's events since the last key, newest first.")

(defun drive-snippet (file)
  "Return the Emacs Lisp in FILE, which is Markdown."
  (with-temp-buffer
    (insert-file-contents file)
    (re-search-forward "^```elisp\n")
    (let ((start (point)))
      (re-search-forward "^```$")
      (read (replace-regexp-in-string "/home/you/.cargo/bin/" "" (buffer-substring start (match-beginning 0)) t t)))))

(defun drive-shown (start &optional with-folded)
  "Return the shell's text from START on, and WITH-FOLDED also what is folded."
  (with-current-buffer drive-shell
    (let ((at start) (parts nil))
      (while (< at (point-max))
        (let ((next (next-single-char-property-change at 'invisible)))
          (when (or with-folded (not (invisible-p at)))
            (push (buffer-substring-no-properties at next) parts))
          (setq at next)))
      (string-trim (replace-regexp-in-string "\n\n\n+" "\n\n" (apply #'concat (nreverse parts)))))))

(defun drive-print (title text)
  (princ (format "==== %s\n%s\n\n" title text)))

(defun drive-header ()
  "Return the line above the shell without what shows that it is busy."
  (string-trim (substring-no-properties (buffer-local-value 'header-line-format drive-shell)) nil "[ ░]+"))

(defun drive-fail (why)
  (message "%s\n\n%s" why (drive-shown 1 t))
  (kill-emacs 1))

(defun drive-until (condition what)
  "Wait until CONDITION returns non-nil and return that; WHAT tells what is waited for."
  (let ((end (+ (float-time) drive-limit)) (found nil))
    (while (not (setq found (funcall condition)))
      (when (> (float-time) end)
        (drive-fail (format "Not in time: %s. Events: %s" what (reverse drive-events))))
      (accept-process-output nil 0.1))
    found))

(defun drive-wait (&rest events)
  "Wait for one of EVENTS and return it."
  (drive-until (lambda () (seq-find (lambda (it) (memq it events)) drive-events)) events))

(defun drive-wait-for-text (text)
  "Wait until the shell has TEXT, folded or not."
  (drive-until (lambda () (string-search text (drive-shown 1 t))) text))

(defun drive-start (&rest events)
  "Start a shell, which takes up the last session in batch mode, and wait for one of EVENTS."
  (setq drive-events nil)
  (call-interactively 'turnwright)
  (setq drive-shell (car (agent-shell-buffers)))
  (agent-shell-subscribe-to
   :shell-buffer drive-shell
   :on-event (lambda (event) (push (alist-get :event event) drive-events)))
  (apply #'drive-wait events))

(defun drive-press (keys)
  "Press KEYS in the shell."
  (setq drive-events nil)
  (switch-to-buffer drive-shell)
  (execute-kbd-macro keys))

(defun drive-play (keys prompt)
  "Type PROMPT and answer permission requests with KEYS."
  (let ((start (with-current-buffer drive-shell
                 (goto-char (point-max))
                 (copy-marker (pos-bol)))))
    (drive-press (vconcat prompt [?\r]))
    (while (eq (drive-wait 'permission-request 'turn-complete 'error) 'permission-request)
      (drive-print "A request" (drive-shown start))
      (drive-press (kbd keys)))
    (drive-print (concat "The end of the turn: " (drive-header)) (drive-shown start))))

(pcase-let ((`(,page ,plugins ,bin ,keys . ,prompts) command-line-args-left))
  (setq command-line-args-left nil)
  (dolist (name '("agent-shell" "acp.el" "shell-maker"))
    (add-to-list 'load-path (expand-file-name name plugins)))
  (push bin exec-path)
  (setenv "PATH" (concat bin ":" (getenv "PATH")))
  (require 'agent-shell)
  (setq agent-shell-tool-use-expand-by-default t
        agent-shell-activity-group-expand-by-default t
        agent-shell-session-restore-verbosity 'full)
  (eval (drive-snippet page) t)
  (drive-start 'init-finished)
  (drive-wait-for-text "/status")
  (drive-print (concat "The start, unfolded: " (drive-header)) (drive-shown 1 t))
  (drive-press (kbd "C-c C-m P l a n RET"))
  (drive-wait 'config-option-update)
  (drive-print "After C-c C-m" (drive-header))
  (drive-press (kbd "C-c C-m A s k RET"))
  (drive-wait 'config-option-update)
  (dolist (prompt prompts)
    (drive-play keys prompt))
  (kill-buffer drive-shell)
  (drive-start 'session-restored)
  (drive-print (concat "The session when it is continued: " (drive-header)) (drive-shown 1))
  (kill-emacs 0))
