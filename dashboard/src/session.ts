// Who is looking, and what they may do. On loopback everybody may do everything; elsewhere a token was exchanged for a
// session.
import { useQuery } from "@tanstack/react-query";
import { createContext, useContext } from "react";
import { call, Refused } from "./api/client";

export interface Session {
  name: string;
  scopes: readonly string[];
  /** Whether there is something to sign out of. */
  isSigned: boolean;
}

export const EVERYTHING: Session = { name: "local", scopes: ["admin"], isSigned: false };
const SessionContext = createContext<Session>(EVERYTHING);
export const SessionProvider = SessionContext.Provider;

export function useSession(): Session {
  return useContext(SessionContext);
}

/** Whether the looker may do this; an admin may do everything. */
export function useMay(scope: "operate" | "enqueue" | "admin" | "read:payload"): boolean {
  const { scopes } = useContext(SessionContext);
  return scopes.includes("admin") || scopes.includes(scope);
}

/** Asks who we are. A server that refuses wants a token first. */
export function useWho() {
  return useQuery({ queryKey: ["session"], queryFn: who, staleTime: Number.POSITIVE_INFINITY, retry: false });
}

async function who(): Promise<Session | "sign-in"> {
  try {
    const { name, scopes } = await call("GET /api/v1/session");
    return { name, scopes, isSigned: name !== EVERYTHING.name };
  } catch (error) {
    if (error instanceof Refused && error.status === 401) return "sign-in";
    throw error;
  }
}

export async function signIn(token: string): Promise<void> {
  await call("POST /api/v1/session", { body: { token } });
}

export async function signOut(): Promise<void> {
  await call("DELETE /api/v1/session");
  location.reload();
}
