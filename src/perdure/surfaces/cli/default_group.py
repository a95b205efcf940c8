"""A command group with a default subcommand: `perdure projects site` is `perdure projects show site`.

Above: commands that are groups. Below: click. Aliases such as `rm` and `ls` lead to the right subcommand.
"""

import difflib
from typing import Any

import click
from click.shell_completion import CompletionItem


class DefaultGroup(click.Group):
    """If the first word is not a subcommand, it becomes the first argument of `default`."""

    def __init__(self, *args: Any, default: str, aliases: dict[str, str] | None = None, **given: Any) -> None:
        super().__init__(*args, **given)
        self.default = default
        self.aliases = aliases or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self.aliases.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands and args[0] not in self.aliases:
            near = difflib.get_close_matches(args[0], self.commands, 1, 0.7)
            if near and len(args) > 1 and not args[1].startswith("-") and not ctx.resilient_parsing:
                # The default command takes one word. With two, the first was probably a misspelt command.
                hint = f"Did you mean `perdure {self.name} {near[0]}`?"
                raise click.UsageError(f"No such command {args[0]!r}. {hint}", ctx)
            args = [self.default, *args]
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The subcommands, and values for the default subcommand's first argument."""
        found = super().shell_complete(ctx, incomplete)
        first = next((param for param in self.commands[self.default].params if isinstance(param, click.Argument)), None)
        return found if first is None else found + first.shell_complete(ctx, incomplete)
